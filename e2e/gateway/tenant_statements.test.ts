import { defineModel } from "@khala/server";
import { RawClient, until } from "@khala/test-support/clients/clients";
import {
  functionBodies,
  StatementRecorder,
  type SystemStatement,
  tenantTables,
  unboundUses,
} from "@khala/test-support/postgres/tenant_statements";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startConvexStandIn } from "@khala/test-support/servers/convex_stand_in";
import { appendToRun, RUNS, startServer } from "@khala/test-support/servers/servers";
import { expect, test, vi } from "vitest";
import { defineApp } from "../../packages/server/src/app.ts";
import type * as DatabaseModule from "../../packages/server/src/database/database.ts";
import { runs } from "../../packages/server/src/events/streams.ts";
import { parity, reproject, trimNow } from "../../packages/server/src/main/operations/operations.ts";
import { runSummaries } from "../../packages/server/src/sync/models/runtime.ts";

const recorder = vi.hoisted(() => ({ watch: undefined as ((database: object) => object) | undefined }));
vi.mock("../../packages/server/src/database/database.ts", async (original) => {
  const real = await original<typeof DatabaseModule>();
  return {
    ...real,
    openDatabase(options: Parameters<typeof real.openDatabase>[0]) {
      const database = real.openDatabase(options);
      return recorder.watch?.(database) ?? database;
    },
  };
});

/** The tables of the planes that hold to the rule. A plane joins with its tables, and with the system statements below. */
const PLANES = /^(event_streams|events|sync_\w+)$/;

const REBUILD =
  "a rebuild goes through the documents and failed streams of all orgs, in the order of org and key";

/** What runs for all orgs at once. The rows that they read carry their org. */
const SYSTEM: readonly SystemStatement[] = [
  { statement: /^authority_read$/, reason: "projections follow the log of all orgs in its order" },
  { statement: /^sync_read_\w+$/, reason: "a server reads the journal once for all of its sockets" },
  {
    statement: /^sync_wanted_\w+$/,
    reason: "a named row is looked up by its watermark, and its org compared after, for the planner's sake",
  },
  { statement: /^mirror_(list_)?sync_\w+$/, reason: "the mirror follows the documents of all orgs" },
  { statement: /^parity_\w+$/, reason: "the comparison with the mirror looks at all documents" },
  {
    statement: /extract\(epoch FROM now\(\) - inserted_at\)/,
    reason: "the mirror's lag is the age of a journal row",
  },
  { statement: /^sync_journal_sizes$/, reason: "metrics name no org: the age of the oldest row" },
  { statement: /^SELECT s\.topic, s\.next_watermark AS head/, reason: "figures of a topic name no org" },
  { statement: /^sync_count_failed$/, reason: "health and metrics name no org: a count" },
  {
    statement: /^sync_take_failed$/,
    reason: "the projector tries the streams of all orgs again, oldest first",
  },
  { statement: /^sync_retention_\w+$/, reason: "retention removes the rows of all orgs by their age" },
  { statement: /^store_rebuilt$/, reason: "its rows name the org, in a list of columns over two lines" },
  {
    statement: /^WITH batch AS \(\s+SELECT org_id, doc_key FROM runtime\.sync_rebuilt_documents/,
    reason: REBUILD,
  },
  { statement: /^SELECT org_id AS org, doc_key AS "docKey", n AS documents/, reason: REBUILD },
  { statement: /^\s+WITH live AS/, reason: REBUILD },
  { statement: /^(DELETE FROM|UPDATE|INSERT INTO) runtime\.sync_failed_streams/, reason: REBUILD },
];

test("every statement of the sync plane and the event log on a tenant's table names the org", async () => {
  await using own = await testDatabase();
  await using convex = await startConvexStandIn();
  const record = new StatementRecorder();
  recorder.watch = (database) => record.watch(database as DatabaseModule.Database);
  let broken = true;
  const fragile = defineModel<{ steps: number }>({
    topic: "app.fragile",
    prefix: "fragile",
    streams: [runs],
    audience: () => ["user-1"],
    project(before, { data }) {
      if (broken && (data as { name?: string }).name === "bad") throw new Error("bad");
      return { steps: (before?.steps ?? 0) + 1 };
    },
  });
  const models = [runSummaries, fragile];
  const mirror = { KHALA_MIRROR: "convex", CONVEX_URL: convex.url };
  // Nothing is kept in memory, so that a replay reads the database.
  const settings = { ...mirror, KHALA_PROJECTION_RETRY_MS: "20", KHALA_TAIL_BYTES: "0" };
  await using server = await startServer(own.url, { models, settings });
  const scopes = [RUNS, "app.fragile", "runtime:write", "ops", "platform"];
  const token = await server.token({ scopes });
  await using raw = await RawClient.connect(server.socketUrl, { token });
  await raw.join();
  await raw.subscribe(RUNS);
  const step = (name: string) => ({ type: "run.step", data: { name } });
  await appendToRun(server, token, "r", { type: "run.started" }, step("a"), step("bad"), step("b"));
  await appendToRun(server, token, "gone", { type: "run.started" }, { type: "run.deleted" });
  await expect(appendToRun(server, await server.token({ sub: "eve" }), "r", step("c"))).rejects.toThrow();
  await until("the document", () => raw.updates.some(({ doc_key }) => doc_key === "run:r"));
  const get = async (path: string) => (await server.request(path, token)).json();
  await until(
    "the failure",
    async () => ((await get("/ops/v1/failed-streams")) as { streams: [] }).streams.length > 0,
  );
  broken = false;
  await until(
    "its end",
    async () => ((await get("/ops/v1/failed-streams")) as { streams: [] }).streams.length === 0,
  );
  for (const path of [
    "/runtime/v1/runs/r/events?after=1",
    "/sync/v1/doc/run:r",
    `/sync/v1/list/${RUNS}`,
    "/sync/v1/list/app.fragile",
    `/ops/v1/documents?topic=${RUNS}&search=r`,
    "/ops/v1/history/run:r",
    "/ops/v1/topics",
    "/ops/v1/parity",
    "/metrics",
    "/readyz",
  ])
    expect((await server.request(path, token)).status, path).toBe(200);
  await using late = await RawClient.connect(server.socketUrl, { token });
  await late.join();
  await late.subscribe(RUNS, { [RUNS]: { epoch: "", watermark: "0" } });
  await until("the replay", () => late.updates.some(({ doc_key }) => doc_key === "run:r"));
  const app = defineApp({ models });
  const { url: databaseUrl } = own;
  for (const topic of [RUNS, "app.fragile"]) await reproject({ app, databaseUrl, topic, restart: true });
  const { url } = convex;
  await parity({
    app,
    databaseUrl,
    convex: { url, mutation: "khala:applyUpdates", query: "khala:versions" },
  });
  await trimNow({ app, databaseUrl, keepMs: 0 });

  const tables = new Set([...(await tenantTables(own.database))].filter((table) => PLANES.test(table)));
  expect(tables.size).toBeGreaterThan(5);
  expect(record.statements.size).toBeGreaterThan(30);
  expect(unboundUses(record.statements, tables, SYSTEM)).toEqual([]);
  const functions = new Map([...(await functionBodies(own.database))].map(([name, body]) => [body, name]));
  expect(unboundUses(functions, tables, [])).toEqual([]);
  // An entry that matches nothing any more is removed.
  const seen = [...record.statements.values()];
  expect(SYSTEM.filter(({ statement }) => !seen.some((each) => statement.test(each)))).toEqual([]);
});
