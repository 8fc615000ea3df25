import type { Database, Statement } from "../../../server/src/database/database.ts";

interface Plan {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Index Cond"?: string;
  /** Includes the plans below it. */
  readonly "Shared Hit Blocks"?: number;
  readonly "Shared Read Blocks"?: number;
  readonly Plans?: readonly Plan[];
}

const nodesOf = (plan: Plan): Plan[] => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];

/** The settings that earlier statements of its transaction made. */
const settingsOf = new WeakMap<Statement, readonly Statement[]>();

async function explained(database: Database, statement: Statement, how: string): Promise<Plan> {
  const { text, values = [] } = statement;
  const settings = settingsOf.get(statement) ?? [];
  const results = await database.transaction([...settings, { text: `EXPLAIN (${how}) ${text}`, values }]);
  const [row] = results.at(-1) as { "QUERY PLAN": { Plan: Plan }[] }[];
  return row!["QUERY PLAN"][0]!.Plan;
}

/** The reads of a statement, as `index: condition`, or `table: all` for a table read without an index. */
export async function readsOf(database: Database, statement: Statement): Promise<string[]> {
  return nodesOf(await explained(database, statement, "FORMAT JSON"))
    .filter((node) => /^(Seq|Index|Index Only|Bitmap Index) Scan$/.test(node["Node Type"]))
    .map((node) => `${node["Index Name"] ?? node["Relation Name"]}: ${node["Index Cond"] ?? "all"}`);
}

/** Keeps autovacuum from collecting statistics, for which a slow machine gives it time. */
export async function withoutStatistics(database: Database): Promise<void> {
  await database.query({
    text: `DO $$ DECLARE of_runtime regclass; BEGIN
        FOR of_runtime IN SELECT oid FROM pg_class WHERE relnamespace = 'runtime'::regnamespace AND relkind = 'r' LOOP
          EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', of_runtime);
        END LOOP;
      END $$`,
  });
}

/** Runs a statement, and returns how many pages of the database it read. */
export async function buffersOf(database: Database, statement: Statement): Promise<number> {
  const plan = await explained(database, statement, "ANALYZE, BUFFERS, FORMAT JSON");
  return plan["Shared Hit Blocks"]! + plan["Shared Read Blocks"]!;
}

/** Records the named statements of a board. */
export function recording(database: Database): { database: Database; statements: Map<string, Statement> } {
  const statements = new Map<string, Statement>();
  const keep = (statement: Statement) => {
    if (statement.name?.startsWith("board_")) statements.set(statement.name, statement);
  };
  return {
    statements,
    database: {
      ...database,
      query(statement) {
        keep(statement);
        return database.query(statement);
      },
      transaction(all) {
        for (const each of all) {
          keep(each);
          settingsOf.set(
            each,
            all.filter(({ text }) => text.startsWith("SELECT set_config(")),
          );
        }
        return database.transaction(all);
      },
    },
  };
}
