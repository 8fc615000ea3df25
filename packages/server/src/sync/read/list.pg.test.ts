import { testContext } from "@khala/test-support/kit/context";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { writeDocument } from "@khala/test-support/postgres/write_documents";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Database, Statement } from "../../database/database.ts";
import { syncMetrics } from "../metrics.ts";
import { defineModel, type Model, type ModelDefinition } from "../model.ts";
import { openSink, type Sink } from "../write/sink.ts";
import { type ListPlace, type ListQuery, listDocuments, listStatement } from "./list.ts";
import { createReadModel, createReadModels } from "./read_models.ts";
import { recordStart } from "./starts.ts";

let shared: TestDatabase;
let sink: Sink;
beforeAll(async () => {
  shared = await testDatabase();
  const context = await testContext();
  await shared.database.interactive((tx) => recordStart(tx, context));
  const metrics = syncMetrics(context.telemetry.meter);
  sink = openSink(shared.database, context, { inline: true, metrics, onCommit: () => {} });
});
afterAll(() => shared[Symbol.asyncDispose]());

interface Task {
  readonly title?: unknown;
  readonly status?: unknown;
  readonly rank?: unknown;
  readonly project_id?: string;
}

let count = 0;
function define(fields: Partial<ModelDefinition<Task>>, name = `lists_${++count}`): Model {
  return defineModel<Task>({
    topic: `app.${name}`,
    prefix: "t",
    streams: [],
    project: (before) => before,
    ...fields,
  });
}

async function created(fields: Partial<ModelDefinition<Task>>, name?: string): Promise<Model> {
  const model = define(fields, name);
  await createReadModels(shared.database, [model]);
  return model;
}

const ANN = { org: "acme", subject: "ann" };

async function put(
  model: Model,
  id: string,
  document: Task,
  more: { version?: number; audience?: string[] } = {},
) {
  const { version = 1, audience = null } = more;
  const payload = JSON.stringify(document);
  await writeDocument(shared.database, sink, model, {
    docKey: `t:${id}`,
    docVersion: BigInt(version),
    op: "upsert",
    payload,
    org: "acme",
    audience,
  });
}

/** The ids of all pages of a list, in their order. */
async function idsOf(
  model: Model,
  query: Partial<ListQuery> = {},
  { limit = 2, between = async () => {} }: { limit?: number; between?: () => Promise<void> } = {},
): Promise<string[]> {
  const ids: string[] = [];
  let after: ListPlace | undefined;
  do {
    const page = await listDocuments(
      shared.database,
      model,
      ANN,
      { filters: new Map(), ...query },
      { after, limit, maxBytes: 1 << 20 },
    );
    ids.push(...page.documents.map(({ docKey }) => docKey.slice(2)));
    after = page.next;
    await between();
  } while (after);
  return ids;
}

test("orders a list by a field: null, booleans, numbers, text, and ties by key", async () => {
  const model = await created({ orderBy: ["rank", "-rank"] });
  const ranks: Record<string, unknown> = {
    a: "b",
    b: "a",
    c: "é",
    d: 10,
    e: 9,
    f: -1.5,
    g: -20,
    h: 0,
    i: true,
    j: false,
    k: null,
    l: [1],
    m: 9,
    n: 1e300,
    o: "😀",
    p: "\0",
  };
  for (const [id, rank] of Object.entries(ranks)) await put(model, id, { rank });
  await put(model, "q", {});
  const ordered = ["k", "l", "q", "j", "i", "g", "f", "h", "e", "m", "d", "n", "b", "a", "c", "p", "o"];
  expect(await idsOf(model, { order: "rank" })).toEqual(ordered);
  expect(await idsOf(model, { order: "-rank" })).toEqual(ordered.toReversed());
});

test("filters by text, numbers and booleans, in every order", async () => {
  const model = await created({ orderBy: ["title"], filter: ["status", "rank"] });
  await put(model, "1", { status: "open", title: "b", rank: 1 });
  await put(model, "2", { status: "done", title: "a", rank: 1 });
  await put(model, "3", { status: "open", title: "a", rank: true });
  await put(model, "4", { title: "x".repeat(5_000), status: "y".repeat(5_000) });
  const found = (filters: Record<string, string>, order?: string) =>
    idsOf(model, { order, filters: new Map(Object.entries(filters)) });
  expect(await found({ status: "open" })).toEqual(["1", "3"]);
  expect(await found({ status: "open" }, "title")).toEqual(["3", "1"]);
  expect(await found({ rank: "1" })).toEqual(["1", "2"]);
  expect(await found({ rank: "true", status: "open" })).toEqual(["3"]);
  expect(await found({ status: "open' OR true --" })).toEqual([]);
  // Too long for an index: in no filter, and last in the order.
  expect(await found({ status: "y".repeat(5_000) })).toEqual([]);
  expect(await found({}, "title")).toEqual(["2", "3", "1", "4"]);
});

test("an ordered list has documents that name the viewer, and none that name only others", async () => {
  const model = await created({ orderBy: ["-rank"], filter: ["status"] });
  await put(model, "1", { rank: 1, status: "open" });
  await put(model, "2", { rank: 2, status: "open" }, { audience: ["ann"] });
  await put(model, "3", { rank: 3, status: "open" }, { audience: ["bob"] });
  await put(model, "4", { rank: 4, status: "open" }, { audience: ["ann", "bob"] });
  expect(await idsOf(model, { order: "-rank" }, { limit: 1 })).toEqual(["4", "2", "1"]);
  expect(await idsOf(model, { order: "-rank", filters: new Map([["status", "open"]]) })).toEqual([
    "4",
    "2",
    "1",
  ]);
});

test("pages stay correct during writes: documents that do not move come once", async () => {
  const model = await created({ orderBy: ["-rank"] });
  for (let i = 0; i < 8; i++) await put(model, String(i), { rank: i });
  let version = 1;
  // "0" moves to the front, behind the page that was read.
  const between = () => put(model, "0", { rank: 100 + version }, { version: ++version });
  const ids = await idsOf(model, { order: "-rank" }, { between });
  expect(ids.filter((id) => id !== "0")).toEqual(["7", "6", "5", "4", "3", "2", "1"]);
});

test("a model that declares more fields gets their columns and indexes for stored documents", async () => {
  const before = await created({}, "grown");
  await put(before, "1", { rank: 2 });
  await put(before, "2", { rank: 1 });
  const after = await created({ orderBy: ["rank"], filter: ["status"] }, "grown");
  expect(await idsOf(after, { order: "rank" })).toEqual(["2", "1"]);
  // A server with the older model may still be running.
  await createReadModels(shared.database, [before]);
  expect(await idsOf(after, { order: "rank" })).toEqual(["2", "1"]);
  await shared.database.query(createReadModel(after, { prune: true }));
  expect(await indexesOf(after)).toHaveLength(3);
  await shared.database.query(createReadModel(before, { prune: true }));
  expect(await indexesOf(after)).toEqual([]);
});

/** The indexes of declared fields. */
function indexesOf({ table }: Model): Promise<{ columns: string }[]> {
  return shared.database.query({
    text: `SELECT indexdef AS columns FROM pg_indexes WHERE schemaname = 'runtime' AND tablename = $1 AND indexname ~ '_[0-9a-f]{8}$'`,
    values: [table],
  });
}

describe("at 100,000 documents", () => {
  const LIMIT = 50;
  let model: Model;
  beforeAll(async () => {
    model = await created({ orderBy: ["-rank"], filter: ["status"], by: ["project_id"] });
    await shared.database.query({ text: `ALTER TABLE runtime.${model.table} SET UNLOGGED` });
    // In parts, each far below the statement timeout.
    for (let from = 1; from <= 100_000; from += 10_000)
      await shared.database.query({
        text: `INSERT INTO runtime.${model.table} (org_id, doc_key, doc_version, payload, payload_hash, audience, watermark)
          SELECT CASE WHEN i % 3 = 0 THEN 'other' ELSE 'acme' END, 't:' || lpad(i::text, 7, '0'), 1,
            convert_to(format('{"project_id":"p%s","rank":%s,"status":"%s"}', i % 1000, i * 7919 % 100003, CASE WHEN i % 50 = 1 THEN 'open' ELSE 'done' END), 'UTF8'),
            '\\x00', CASE WHEN i % 1000 = 1 THEN '{ann}' WHEN i % 10 = 2 THEN '{bob}' END::text[], i
          FROM generate_series($1::int, $1::int + 9999) i`,
        values: [from],
      });
  }, 120_000);

  const queries: Record<string, ListQuery> = {
    "in order": { order: "-rank", filters: new Map() },
    "filtered, by key": { filters: new Map([["status", "open"]]) },
    "filtered, in order": { order: "-rank", filters: new Map([["status", "open"]]) },
    "of a part": { filters: new Map([["project_id", "p7"]]) },
    "of a part, in order": { order: "-rank", filters: new Map([["project_id", "p7"]]) },
  };
  const pages = [
    { of: "the first page", after: undefined },
    { of: "a page in the middle", after: { sortKey: "n140e0000000000000", docKey: "t:0050000" } },
  ];
  const states = [
    { when: "never analyzed", prepare: async () => {} },
    { when: "analyzed", prepare: () => shared.database.query({ text: `ANALYZE runtime.${model.table}` }) },
  ];
  describe.each(states)("$when", ({ prepare }) => {
    beforeAll(async () => {
      await prepare();
    });
    const cases = Object.entries(queries).flatMap(([name, query]) =>
      pages.map(({ of, after }) => ({ name, of, query, after })),
    );
    test.each(cases)("$of of a list $name uses an index", async ({ query, after }) => {
      const statement = listStatement(model, ANN, query, { after, limit: LIMIT, maxBytes: 1 << 20 });
      for (const mode of ["custom", "generic"] as const) {
        const { nodes, pages: read } = await explain(shared.database, statement, mode);
        const shape = [mode, ...nodes.map(outline)].join("\n");
        expect(
          nodes.map((node) => node["Node Type"]),
          shape,
        ).not.toContain("Seq Scan");
        // A page for each document and its entry, those that name the viewer, and the way down the indexes.
        expect(read, shape).toBeLessThan(4 * (LIMIT + 70) + 100);
      }
    });
  });
});

/** A node of a plan in a line, for the message of a failure. */
function outline(node: Omit<Plan, "Plans">): string {
  const {
    "Node Type": type,
    "Index Name": index = "",
    "Index Cond": condition = "",
    Filter: filter = "",
  } = node;
  return `${type} ${index} ${condition} ${filter}: ${node["Actual Rows"]} rows, ${node["Shared Hit Blocks"] + node["Shared Read Blocks"]} pages`;
}

interface Plan {
  readonly Filter?: string;
  readonly "Node Type": string;
  readonly "Index Name"?: string;
  readonly "Index Cond"?: string;
  readonly "Actual Rows": number;
  readonly "Shared Hit Blocks": number;
  readonly "Shared Read Blocks": number;
  readonly Plans?: readonly Plan[];
}

async function explain(
  { interactive }: Database,
  { text, values = [] }: Statement,
  mode: "custom" | "generic",
): Promise<{ nodes: Omit<Plan, "Plans">[]; pages: number }> {
  const plan = await interactive(async (tx) => {
    await tx.query({ text: `SELECT set_config('plan_cache_mode', 'force_${mode}_plan', true)` });
    const name = `explained_${mode}`;
    await tx.query({ text: `DEALLOCATE ALL` }).catch(() => {});
    const types = values.map((value) => (typeof value === "number" ? "int" : "text")).join(", ");
    await tx.query({ text: `PREPARE ${name} (${types}) AS ${text}` });
    const literals = values.map((value) => (typeof value === "number" ? value : `'${value}'`)).join(", ");
    const [row] = await tx.query<{ "QUERY PLAN": { Plan: Plan }[] }>({
      text: `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE ${name} (${literals})`,
    });
    await tx.query({ text: `DEALLOCATE ${name}` });
    return row!["QUERY PLAN"][0]!.Plan;
  });
  const flat = (node: Plan): Plan[] => [node, ...(node.Plans ?? []).flatMap(flat)];
  const nodes = flat(plan).map(({ Plans: _, ...node }) => node);
  return { nodes, pages: plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] };
}
