import { globSync, readFileSync } from "node:fs";
import type { Database, Statement } from "../../../server/src/database/database.ts";

/** A statement that may touch a tenant's table without naming the org, and why. */
export interface SystemStatement {
  /** Matches the statement's name or, for one without a name, its text. */
  readonly statement: RegExp;
  readonly reason: string;
}

/** A use of a tenant's table that does not name the org. */
export interface UnboundUse {
  readonly table: string;
  readonly statement: string;
}

/** Every statement that databases received. */
export class StatementRecorder {
  readonly #texts = new Map<string, string>();

  /** By text; the value is the name, or the text when there is none. */
  get statements(): ReadonlyMap<string, string> {
    return this.#texts;
  }

  /** The database, with every statement recorded. */
  watch(database: Database): Database {
    return {
      ...database,
      query: (statement) => database.query(this.#record(statement)),
      transaction: (statements) => database.transaction(statements.map((each) => this.#record(each))),
      interactive: (fn) =>
        database.interactive((tx) => fn({ query: (statement) => tx.query(this.#record(statement)) })),
    };
  }

  #record(statement: Statement): Statement {
    this.#texts.set(statement.text, statement.name ?? statement.text);
    return statement;
  }
}

/** The named statements in source files, by text, including those that no test sends. */
export function sourceStatements(pattern: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const file of globSync(pattern, { exclude: (path) => path.endsWith(".test.ts") })) {
    const source = readFileSync(file, "utf8");
    for (const [, name = "", quoted, plain] of source.matchAll(NAMED_STATEMENT))
      found.set(quoted ?? plain ?? "", name);
  }
  return found;
}

const NAMED_STATEMENT = /\bname: "(\w+)",\s+text:\s*(?:`([^`]*)`|"([^"]*)")/g;

/** The tables of the schema that have rows of orgs. */
export async function tenantTables(database: Pick<Database, "query">): Promise<Set<string>> {
  const rows = await database.query<{ name: string }>({
    text: `SELECT c.relname AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
      WHERE c.relnamespace = 'runtime'::regnamespace AND c.relkind = 'r' AND a.attname = 'org_id' AND NOT a.attisdropped`,
  });
  return new Set(rows.map(({ name }) => name));
}

/** The functions of the schema, by name: the statements inside them are not visible from outside. */
export async function functionBodies(database: Pick<Database, "query">): Promise<Map<string, string>> {
  const rows = await database.query<{ name: string; body: string }>({
    text: "SELECT proname AS name, prosrc AS body FROM pg_proc WHERE pronamespace = 'runtime'::regnamespace",
  });
  return new Map(rows.map(({ name, body }) => [name, body]));
}

/** The uses of these tables, in these statements by text, that neither name the org nor are a system statement's. */
export function unboundUses(
  statements: ReadonlyMap<string, string>,
  tables: ReadonlySet<string>,
  system: readonly SystemStatement[],
): UnboundUse[] {
  const found: UnboundUse[] = [];
  for (const [text, statement] of statements) {
    if (system.some((each) => each.statement.test(statement))) continue;
    for (const table of unboundTables(text, tables)) found.push({ table, statement });
  }
  return found;
}

// `INSERT INTO runtime.t AS x (`, `FROM runtime.t x`, `JOIN`, `UPDATE`, `USING`; words of the grammar are no alias.
const USE =
  /\b(INTO|FROM|JOIN|UPDATE|USING|,)\s+runtime\.(\w+)(?:\s+(?:AS\s+)?(?!(?:WHERE|SET|ON|ORDER|JOIN|LEFT|CROSS|LIMIT|USING|SELECT|VALUES|GROUP|FOR|WINDOW|RETURNING|INNER|FULL|UNION)\b)(\w+))?/gi;

/** The tables that a statement uses without naming the org, in the order of their use. */
export function unboundTables(text: string, tables: ReadonlySet<string>): string[] {
  const plain = text.replaceAll(/--.*$/gm, "");
  const unbound: string[] = [];
  for (const use of plain.matchAll(USE)) {
    const [match, how = "", table = "", alias] = use;
    if (!tables.has(table)) continue;
    const scope = scopeAround(plain, use.index);
    const bound =
      how.toUpperCase() === "INTO"
        ? insertsOrg(plain.slice(use.index + match.length))
        : comparesOrg(scope, alias);
    if (!bound) unbound.push(table);
  }
  return unbound;
}

/** An insert must give the org, and find an existing row by it. */
function insertsOrg(rest: string): boolean {
  const columns = /^\s*\(([^)]*)\)/.exec(rest)?.[1] ?? "";
  const target = /^[^;]*?\bON CONFLICT \(([^)]*)\)/.exec(rest)?.[1];
  return /\borg_id\b/.test(columns) && (target === undefined || /\borg_id\b/.test(target));
}

/** A read or change must compare the org of the table, under its alias where it has one. */
function comparesOrg(scope: string, alias: string | undefined): boolean {
  const org = alias ? `(?:${alias}\\.)?org_id` : "org_id";
  const equal = new RegExp(`(?<![.\\w])${org}\\s*=(?!\\s*excluded)|=\\s*${alias ?? ""}\\.?org_id\\b`);
  const inList = new RegExp(`\\((?:\\w+, )*(?:${alias}\\.)?org_id(?:, \\w+)*\\) IN \\(`);
  const joined = /USING \(org_id\b/;
  // Both bounds of a row comparison, in the order of an index.
  const row = `\\((?:${alias}\\.\\w+, )*${alias}\\.org_id\\b[^()]*\\) `;
  const between = new RegExp(`${row}>`).test(scope) && new RegExp(`${row}<`).test(scope);
  return equal.test(scope) || inList.test(scope) || joined.test(scope) || between;
}

/** The text between the parentheses around a place, or all of it. */
function scopeAround(text: string, at: number): string {
  let depth = 0;
  let start = 0;
  for (let i = at - 1; i >= 0; i--) {
    if (text[i] === ")") depth++;
    else if (text[i] === "(" && depth-- === 0) {
      start = i + 1;
      break;
    }
  }
  depth = 0;
  for (let i = at; i < text.length; i++) {
    if (text[i] === "(") depth++;
    else if (text[i] === ")" && depth-- === 0) return text.slice(start, i);
  }
  return text.slice(start);
}
