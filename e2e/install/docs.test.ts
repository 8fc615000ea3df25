import { existsSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { settingsTable } from "../../packages/cli/src/commands/config.ts";
import { blocksOf, docFiles } from "../../scripts/doc_blocks.ts";
import { ensureInstalled, runTool } from "../../scripts/install.ts";
import { ROOT } from "../../scripts/run.ts";
import { CACHE, INSIDE, Reader } from "./docs_reader.ts";

/*
 * Runs what README.md and docs/ show. A fenced block says in its first line how:
 *   bash                     runs in the repository's root; variables and functions last until the end of the file
 *   bash serve               starts a server for the rest of the file, on a free port with a folder of its own
 *   bash until="text"        is stopped with Ctrl-C once it has printed the text; so are js and ts
 *   ts, js                   runs; `npm run check` checks the types of ts; "./…" is the repository's root
 *   … app=path, bash app   are a file, or commands, of an app made by `npm create khala`: new_app.test.ts does them
 *   … file=path              is a part of that file, which is tested elsewhere; tsx always is
 *   json, sql                parses; is planned, or run and rolled back
 *   … no-run reason="why"    only where it cannot be run here
 * http://127.0.0.1:4000 and $KHALA_URL stand for the server, $TOKEN for the token that it printed. `npm ci` and `npm test` are what CI runs, and are left out.
 */
const QUIET = new Set([
  "",
  "text",
  "mermaid",
  "proto",
  "yaml",
  "promql",
  "http",
  "html",
  "env",
  "dockerfile",
]);
const RUN = new Set(["bash", "ts", "tsx", "js", "json", "sql"]);
const FILES = await docFiles();

const temporary = () => mkdtemp(join(tmpdir(), "khala-docs-"));
let house: Reader;
beforeAll(async () => {
  if (process.env[INSIDE])
    throw new Error("A document has started the tests that read it. Let it not run `npm test`.");
  // The docs call buf, which a reader has installed.
  await ensureInstalled("tools/check");
  await mkdir(CACHE, { recursive: true });
  house = new Reader(await temporary());
});
afterAll(async () => {
  await house[Symbol.asyncDispose]();
  await rm(CACHE, { recursive: true, force: true });
});

describe.each(FILES)("%s", (file) => {
  const blocks = blocksOf(file);

  test("does what it shows", { timeout: 120_000 }, async ({ signal }) => {
    await using reader = new Reader(await temporary(), signal, house);
    for (const block of blocks) {
      if (block.options.app) continue;
      if (QUIET.has(block.language) && !block.options.file) continue;
      if (!QUIET.has(block.language))
        expect(RUN, `${block.place}: name a language that is run`).toContain(block.language);
      await reader.follow(block).catch((error: Error) => {
        throw new Error(`${block.place}: ${error.message}`, { cause: error });
      });
    }
  });

  test("links to files, headings and names that exist", () => {
    const text = readFileSync(join(ROOT, file), "utf8").replaceAll(/^```[\s\S]*?^```$/gm, "");
    for (const [, words, link] of text.matchAll(/\[([^\]]*)\]\((?!https?:)([^)\s]+)\)/g)) {
      const [path, heading] = link!.split("#");
      const target = path ? resolve(ROOT, dirname(file), decodeURI(path)) : join(ROOT, file);
      const place = `${file} links to ${link}`;
      expect(existsSync(target), place).toBe(true);
      if (heading && target.endsWith(".md")) expect(anchors(target), place).toContain(heading);
      // A name in code that links to a file is somewhere in that file.
      const [, name] = /^`(\w+)`$/.exec(words!) ?? [];
      if (name && /\.(ts|sql)$/.test(target))
        expect(readFileSync(target, "utf8"), place).toMatch(new RegExp(`\\b${name}\\b`));
    }
  });
});

function anchors(file: string): string[] {
  const headings = [...readFileSync(file, "utf8").matchAll(/^#+ (.*)$/gm)].map(([, text]) => text!);
  return headings.map((text) =>
    text
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, "")
      .replaceAll(" ", "-"),
  );
}

test("the generated code of the example equals its proto", async () => {
  const copy = await mkdtemp(join(tmpdir(), "khala-example-"));
  try {
    await cp(join(ROOT, "examples/tasks"), copy, { recursive: true });
    await rm(join(copy, "gen"), { recursive: true });
    const generation = await runTool("buf", ["generate"], copy);
    expect(generation, generation.output).toMatchObject({ code: 0 });
    const generated = (folder: string) => readFile(join(folder, "gen/tasks_pb.ts"), "utf8");
    expect(await generated(copy)).toBe(await generated(join(ROOT, "examples/tasks")));
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
});

test("docs/CONFIGURATION.md has every setting, as `khala config --markdown` prints them", async () => {
  expect(await readFile(join(ROOT, "docs/CONFIGURATION.md"), "utf8")).toContain(settingsTable());
});
