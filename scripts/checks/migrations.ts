import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Finished, ROOT, run } from "../run.ts";

const DATABASE = "packages/server/src/database";

/** What a release has of the schema's files, and what the tree has, by path below `database/`. */
export interface SchemaFiles {
  /** The version that the tree becomes. */
  readonly version: string;
  /** Released versions, newest first. */
  readonly releases: readonly string[];
  readonly released: ReadonlyMap<string, string>;
  readonly current: ReadonlyMap<string, string>;
}

/** Statements and actions of ALTER TABLE that a server of the release before may not survive. */
const CONTRACTS: readonly [pattern: RegExp, what: string][] = [
  [/^DROP /, "drops what older servers use"],
  [/^(TRUNCATE|DELETE) /, "removes rows that older servers may use"],
  [/^REVOKE /, "takes rights away"],
  [/^DO\b/, "cannot be checked: write plain statements"],
  [/^ALTER TYPE (?!.* ADD VALUE)/, "changes a type that older servers use"],
  [/\bRENAME\b/, "renames what older servers use"],
  [/\bSET SCHEMA\b/, "moves what older servers use"],
  [/^CREATE UNIQUE INDEX /, "refuses rows that older servers may write"],
  [/^ALTER TABLE .* DROP (?!NOT NULL)/, "drops what older servers use"],
  [/^ALTER TABLE .* ALTER (COLUMN )?\S+ (SET DATA )?TYPE /, "changes the type of a column"],
  [/^ALTER TABLE .* SET NOT NULL/, "refuses rows that older servers write"],
  [
    /^ALTER TABLE .* ADD (CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN|EXCLUDE)\b/,
    "refuses rows that older servers may write",
  ],
  [
    /^ALTER TABLE .* ADD (?!.*\b(DEFAULT|GENERATED|SERIAL|BIGSERIAL)\b).*(NOT NULL|PRIMARY KEY)/,
    "adds a column that older servers leave empty: give it a DEFAULT",
  ],
];

/** What a migration does that needs the release before to be prepared for it. */
export function contractsIn(sql: string): string[] {
  const statements = statementsOf(sql);
  const created = new Set(
    statements.flatMap((text) => /^CREATE TABLE (?:IF NOT EXISTS )?([^\s(]+)/.exec(text)?.[1] ?? []),
  );
  return statements.flatMap((statement) => {
    const table =
      /^(?:ALTER TABLE (?:IF EXISTS )?(?:ONLY )?|CREATE UNIQUE INDEX .*? ON (?:ONLY )?)([^\s(]+)/.exec(
        statement,
      )?.[1];
    if (table && created.has(table)) return [];
    return actionsOf(statement).flatMap((action) => {
      const found = CONTRACTS.find(([pattern]) => pattern.test(action));
      return found ? [`"${action.slice(0, 100)}" ${found[1]}`] : [];
    });
  });
}

/** Everything that would break servers of the last release, or databases that it made. */
export function schemaProblems({ version, releases, released, current }: SchemaFiles): string[] {
  const problems: string[] = [];
  const migrations = [...current.keys()].filter((path) => path.startsWith("migrations/")).sort();
  let contract = false;
  for (const [i, path] of migrations.entries()) {
    if (!new RegExp(`^migrations/${String(i + 2).padStart(4, "0")}_[a-z0-9_]+\\.sql$`).test(path))
      problems.push(
        `${path}: expected the number ${String(i + 2).padStart(4, "0")} and a name in lower case`,
      );
    if (released.has(path)) continue;
    const sql = current.get(path)!;
    const since = /^-- contract: (.*)$/m.exec(sql)?.[1];
    if (since === undefined) problems.push(...contractsIn(sql).map((what) => `${path}: ${what}`));
    else if (isOlderRelease(since, releases, version)) contract = true;
    else
      problems.push(
        `${path}: "-- contract: ${since}" does not say "since" and a released version that is a minor or more before ${version}`,
      );
  }
  let changesFunctions = false;
  for (const [path, before] of released) {
    const now = current.get(path);
    if (now === before) continue;
    if (!path.startsWith("functions/")) problems.push(`${path}: it is released; write a new migration`);
    else {
      changesFunctions = true;
      if ((now === undefined || signatureOf(now) !== signatureOf(before)) && !contract)
        problems.push(
          `${path}: older servers call it with its old signature; keep it, and write a new function beside it`,
        );
    }
  }
  changesFunctions ||=
    released.size > 0 &&
    [...current.keys()].some((path) => path.startsWith("functions/") && !released.has(path));
  if (changesFunctions && migrations.every((path) => released.has(path)))
    problems.push(
      "functions/ differs from the release: add a migration, if only a comment, so that an older server which starts again leaves them alone",
    );
  return problems;
}

/** Text without comments and literals, one line per statement, in upper case. */
function statementsOf(sql: string): string[] {
  return sql
    .replaceAll(/--.*$|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|\$(\w*)\$[\s\S]*?\$\1\$/gm, (found) =>
      found.startsWith("-") || found.startsWith("/") ? " " : "''",
    )
    .split(";")
    .map((text) => text.replaceAll(/\s+/g, " ").trim().toUpperCase())
    .filter((text) => text !== "");
}

/** The actions of one ALTER TABLE, each with its beginning; any other statement is one action. */
function actionsOf(statement: string): string[] {
  const [, head, rest] = /^(ALTER TABLE (?:IF EXISTS )?(?:ONLY )?\S+) (.*)$/.exec(statement) ?? [];
  if (!head || !rest) return [statement];
  const actions = [""];
  let depth = 0;
  for (const character of rest) {
    depth += Number(character === "(") - Number(character === ")");
    if (character === "," && depth === 0) actions.push("");
    else actions[actions.length - 1] += character;
  }
  return actions.map((action) => `${head} ${action.trim()}`);
}

function isOlderRelease(since: string, releases: readonly string[], version: string): boolean {
  const named = /^since (\d+\.\d+\.\d+)$/.exec(since.trim())?.[1];
  if (!named || !releases.includes(named)) return false;
  const [major, minor] = named.split(".").map(Number) as [number, number];
  const [nowMajor, nowMinor] = version.split(".").map(Number) as [number, number];
  return nowMajor > major || (nowMajor === major && nowMinor > minor);
}

const signatureOf = (sql: string) =>
  /FUNCTION ([\s\S]*?)\bLANGUAGE\b/.exec(sql)?.[1]?.replaceAll(/\s+/g, " ").trim();

/** Whether servers of the last release can run beside this tree, on one database. */
export async function checkMigrations(): Promise<Finished> {
  const tags = await run("git", ["tag", "--merged", "HEAD", "--list", "v*", "--sort=-version:refname"]);
  if (tags.code !== 0) return tags;
  const releases = tags.output.split("\n").flatMap((tag) => /^v(\d+\.\d+\.\d+)$/.exec(tag.trim())?.[1] ?? []);
  const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string };
  const [released, current] = [await filesOfRelease(releases[0]), await filesOfTree()];
  const problems = schemaProblems({ version, releases, released, current });
  if (problems.length > 0) return { code: 1, output: problems.join("\n") };
  const output = releases[0]
    ? `compared with v${releases[0]}`
    : "NOT CHECKED: there is no release yet, so the schema may be edited in place.";
  return { code: 0, output };
}

async function filesOfRelease(version: string | undefined): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  if (!version) return files;
  const tag = `v${version}`;
  const list = await run("git", ["ls-tree", "-r", "--name-only", tag, `${DATABASE}/`]);
  for (const path of list.output.split("\n").filter((name) => name.endsWith(".sql"))) {
    const { output } = await run("git", ["show", `${tag}:${path}`]);
    files.set(path.slice(DATABASE.length + 1), output);
  }
  return files;
}

async function filesOfTree(): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  for (const folder of ["baseline", "functions", "migrations"]) {
    const home = join(ROOT, DATABASE, folder);
    if (!existsSync(home)) continue;
    for (const name of await readdir(home))
      if (name.endsWith(".sql")) files.set(`${folder}/${name}`, await readFile(join(home, name), "utf8"));
  }
  return files;
}
