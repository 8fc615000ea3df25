import { runSummaries } from "@khala/server";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Database, Statement } from "../../packages/server/src/database/database.ts";
import { openJournal, type Want } from "../../packages/server/src/sync/read/journal.ts";

const OTHERS = 200_000;
const MINE = 100;
const LIMITS = { rows: 200, bytes: 2 << 20, payloadBytes: 256 << 10 };

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
  await seed(database.database);
});
afterAll(() => database[Symbol.asyncDispose]());

/** A journal of others' rows, of which some are of my org but not for me, and at its end and in between a few of mine. */
async function seed({ query }: Database): Promise<void> {
  const total = OTHERS + MINE;
  const every = total / MINE;
  // Filled sooner, planned the same.
  for (const table of ["sync_stream_events", "sync_stream_viewers", "sync_stream_parts"])
    await query({ text: `ALTER TABLE runtime.${table} SET UNLOGGED` });
  await query({
    text: `INSERT INTO runtime.sync_stream_events
        (topic, watermark, doc_key, doc_version, op, payload, payload_hash, payload_bytes, org_id, audience)
      SELECT '${RUNS}', i, 'run:' || lpad(i::text, 7, '0'), 1, 'upsert', '{}', '\\x00', 2,
        CASE WHEN i % ${every} = 0 OR i % 10 = 1 THEN 'mine' ELSE 'others' END,
        CASE WHEN i % ${every * 2} = 0 THEN '{me}' WHEN i % ${every} = 0 THEN NULL WHEN i % 10 = 1 THEN '{somebody}' END::text[]
      FROM generate_series(1, ${total}) i`,
  });
  await query({
    text: `INSERT INTO runtime.sync_stream_viewers (topic, org_id, subject, watermark)
      SELECT topic, org_id, unnest(audience), watermark FROM runtime.sync_stream_events WHERE audience IS NOT NULL`,
  });
  // Every row is in one of many parts; mine are in one.
  await query({
    text: `INSERT INTO runtime.sync_stream_parts (topic, org_id, part, watermark)
      SELECT topic, org_id, 'project_id=p' || watermark % ${every}, watermark FROM runtime.sync_stream_events`,
  });
  await query({
    text: `UPDATE runtime.sync_topic_sequences SET next_watermark = ${total} WHERE topic = '${RUNS}'`,
  });
}

interface Plan {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Index Cond"?: string;
  readonly Filter?: string;
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
  readonly "Shared Hit Blocks": number;
  readonly "Shared Read Blocks": number;
  readonly Plans?: readonly Plan[];
}

const nodesOf = (plan: Plan): Plan[] => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];

/** The statements that the journal runs for a call, as it runs them. */
async function statementsOf(
  call: (journal: ReturnType<typeof openJournal>) => Promise<unknown>,
): Promise<Statement[]> {
  const statements: Statement[] = [];
  const recording: Database = {
    ...database.database,
    query(statement) {
      statements.push(statement);
      return database.database.query(statement);
    },
    transaction(all) {
      statements.push(...all);
      return database.database.transaction(all);
    },
  };
  await call(openJournal(recording));
  return statements;
}

/** Explains a statement on a connection of the pool, planned for its values or once for all values. */
async function explain({ text, values = [] }: Statement, plan: "custom" | "generic"): Promise<Plan> {
  const rows = await database.database.interactive(async (tx) => {
    await tx.query({ text: `SET LOCAL plan_cache_mode = force_${plan}_plan` });
    await tx.query({ text: `PREPARE explained AS ${text}` });
    const execute = `EXECUTE explained(${values.map(literal).join(", ")})`;
    const explained = await tx.query<{ "QUERY PLAN": [{ Plan: Plan }] }>({
      text: `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${execute}`,
    });
    await tx.query({ text: "DEALLOCATE explained" });
    return explained;
  });
  return rows[0]!["QUERY PLAN"][0].Plan;
}

function literal(value: unknown): string {
  if (value === null) return "NULL";
  if (Array.isArray(value)) return `ARRAY[${value.map(literal).join(", ")}]`;
  return typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value);
}

/** A plan in a few lines, for the message of a failure. */
function outline(plan: Plan, depth = 0): string {
  const {
    "Node Type": type,
    "Index Name": index = "",
    "Relation Name": table = "",
    "Index Cond": condition = "",
  } = plan;
  const cost = `${plan["Actual Rows"]} rows × ${plan["Actual Loops"]}, ${plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]} pages`;
  const line = `${"  ".repeat(depth)}${type} ${index || table} ${condition} ${plan.Filter ?? ""} (${cost})`;
  return [line, ...(plan.Plans ?? []).map((inner) => outline(inner, depth + 1))].join("\n");
}

/** By index, and no more than is asked for: no row is read to be thrown away. */
async function expectCheap(statements: readonly Statement[], rows: number): Promise<void> {
  for (const statement of statements) {
    for (const kind of ["custom", "generic"] as const) {
      const plan = await explain(statement, kind);
      const shape = outline(plan);
      for (const node of nodesOf(plan)) {
        expect(node["Node Type"], shape).not.toMatch(/Seq Scan|Bitmap/);
        if (node["Relation Name"])
          expect(node["Actual Rows"] * node["Actual Loops"], shape).toBeLessThanOrEqual(rows);
        expect(node["Rows Removed by Filter"] ?? 0, shape).toBe(0);
      }
      // A few pages to walk down each index, and at most a page for each row and for its entry.
      expect(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], shape).toBeLessThan(100 + rows * 8);
    }
  }
}

const wants = [
  { org: "mine", subject: null, after: 0n, bytes: 1 << 20 },
  { org: "mine", subject: "me", after: 0n, bytes: 1 << 20 },
];

describe.each([
  { when: "before the tables were ever analyzed", prepare: async () => {} },
  {
    when: "after they were analyzed",
    prepare: () =>
      database.database.query({
        text: "ANALYZE runtime.sync_stream_events, runtime.sync_stream_viewers, runtime.sync_stream_parts",
      }),
  },
])("among many rows of others, $when", ({ prepare }) => {
  beforeAll(async () => {
    await prepare();
  });

  test("a resume finds its hundred rows by index", async () => {
    let pages: readonly { rows: readonly unknown[] }[] = [];
    const statements = await statementsOf(async (journal) => {
      ({ pages } = await journal.readWanted(runSummaries, wants, LIMITS));
    });
    expect(pages.map((page) => page.rows.length)).toEqual([MINE / 2, MINE / 2]);
    await expectCheap(statements, MINE);
  });

  test("a resume near the end costs only the remaining rows", async () => {
    const late = wants.map((want) => ({ ...want, after: BigInt(OTHERS - 1) }));
    const statements = await statementsOf((journal) => journal.readWanted(runSummaries, late, LIMITS));
    await expectCheap(statements, 2);
  });

  test("the resume of a part, and of a document, finds its rows by index", async () => {
    const want = { org: "mine", subject: null, after: 0n, bytes: 1 << 20 };
    const part: Want = { ...want, part: [{ field: "project_id", value: "p0" }] };
    const one: Want = { ...want, part: [{ field: "doc_key", value: "run:0002001" }] };
    let pages: readonly { rows: readonly unknown[] }[] = [];
    const statements = await statementsOf(async (journal) => {
      ({ pages } = await journal.readWanted(runSummaries, [part, one], LIMITS));
    });
    expect(pages.map((page) => page.rows.length)).toEqual([MINE, 1]);
    await expectCheap(statements, MINE + 1);
  });

  test("many concurrent resumes still use the index", async () => {
    const many = Array.from({ length: 50 }, (_, i) => ({
      org: "mine",
      subject: `nobody-${i}`,
      after: 0n,
      bytes: 1 << 20,
    }));
    const statements = await statementsOf((journal) =>
      journal.readWanted(runSummaries, [...wants, ...many], LIMITS),
    );
    await expectCheap(statements, MINE + many.length);
  });

  test("the topic's own reader reads on by index", async () => {
    const limits = { ...LIMITS, rows: 1_000 };
    const statements = await statementsOf((journal) => journal.read(runSummaries, 100_000n, limits));
    await expectCheap(statements, 1_000);
  });
});
