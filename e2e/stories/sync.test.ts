import { runSummaries } from "@khala/server";
import { RawClient, until } from "@khala/test-support/clients/clients";
import { listAll, watermarkOf } from "@khala/test-support/clients/lists";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { appendToRun, RUNS, startServer } from "@khala/test-support/servers/servers";
import { expect, test } from "vitest";
import { trimTopic } from "../../packages/server/src/sync/rebuild/retention.ts";

test("sync: events become documents on a socket, which resumes without a gap or gets stale_cursor", async () => {
  await using database = await testDatabase();
  await using server = await startServer(database.url, { settings: { KHALA_POLL_MS: "20" } });
  const token = await server.token();
  const join = async () => {
    const client = await RawClient.connect(server.socketUrl, { token });
    await client.join();
    return client;
  };
  const start = { type: "run.started", data: { title: "a run", audience: ["user-1"] } };

  // An event over HTTP becomes a document, and a frame on the Phoenix socket.
  const client = await join();
  const { [RUNS]: first } = await client.subscribe(RUNS);
  await appendToRun(server, token, "r1", start);
  await until("the document", () => client.updates.some(({ doc_key }) => doc_key.includes("r1")), {
    on: client,
  });
  const { through } = client.batches.at(-1)!;
  await client[Symbol.asyncDispose]();

  // Events while it is away are replayed after its cursor, without a gap.
  await appendToRun(server, token, "r1", { type: "run.completed" });
  await appendToRun(server, token, "r2", start);
  await using resumed = await join();
  await resumed.subscribe(RUNS, { [RUNS]: through });
  const keys = () => new Set(resumed.updates.map(({ doc_key }) => doc_key));
  await until("both documents", () => keys().size === 2, { on: resumed });
  expect(resumed.updates.every(({ watermark }) => BigInt(watermark) > watermarkOf(through))).toBe(true);
  const { versions } = await listAll(server, token, RUNS);
  const newest = new Map(resumed.updates.map(({ doc_key, doc_version }) => [doc_key, doc_version]));
  expect(newest).toEqual(versions);

  // A cursor below the retention is stale: the client has to list the documents again.
  await trimTopic(database.database, runSummaries, 0);
  const floor = async () => (await server.khala.sync.hub.feed(RUNS)).bounds.floor;
  await until("the floor", async () => (await floor()) > watermarkOf(first));
  await using late = await join();
  await late.subscribe(RUNS, { [RUNS]: first! });
  const { error } = await late.frame("the error", (frame) => frame.error);
  expect(error).toMatchObject({ code: "stale_cursor", message: expect.stringContaining("/sync/v1/list/") });
});
