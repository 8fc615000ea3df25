import { runSummaries, workerSummaries } from "@khala/server";
import { RawClient, until } from "@khala/test-support/clients/clients";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import {
  NOTIFICATIONS,
  RUNS,
  startServer,
  type TestServer,
  WORKERS,
} from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  // Small batches from the database, so that a replay takes many turns.
  server = await startServer(database.url, {
    settings: { KHALA_REPLAY_MAX_UPDATES: "10", KHALA_TAIL_BYTES: "0" },
  });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

let orgs = 0;
async function viewer() {
  const org = `org-${++orgs}`;
  const token = await server.token({ org_id: org });
  const connect = async (at = server) => {
    const raw = await RawClient.connect(at.socketUrl, { token });
    await raw.join();
    return raw;
  };
  return { org, connect };
}

/** Writes documents 0 to count - 1, and waits until the server has read them back. */
async function fill(
  org: string,
  count: number,
  model: typeof runSummaries | typeof workerSummaries = runSummaries,
): Promise<void> {
  const document = (_: unknown, i: number) => ({
    key: `${model.prefix}:${org}-${i}`,
    version: 1,
    org,
    payload: {},
    model,
  });
  await server.writeAll(Array.from({ length: count }, document));
  await server.caughtUp(model.topic);
}

/** What a socket has been sent is here: a socket that was written to later has answered. */
async function settled(raw: RawClient): Promise<void> {
  await raw.push("sync:v1", "heartbeat");
}

test("without a cursor a subscription starts live: it gets every later update, and no earlier one", async () => {
  const { org, connect } = await viewer();
  await server.write({ key: `run:${org}-before`, version: 1, org, payload: {} });
  await server.caughtUp(RUNS);
  await using raw = await connect();
  const { [RUNS]: now } = await raw.subscribe(RUNS);
  const watermark = await server.write({ key: `run:${org}-after`, version: 1, org, payload: {} });
  await until("the update", () => raw.updates.length, { on: raw });
  expect(raw.updates.map(({ doc_key }) => doc_key)).toEqual([`run:${org}-after`]);
  expect(raw.batches[0]).toMatchObject({ through: { epoch: now!.epoch, watermark: String(watermark) } });
  expect(raw.batches[0]).not.toHaveProperty("replay_complete");
});

test("alternates between topics: a short history does not wait for a long one", async () => {
  const { org, connect } = await viewer();
  await Promise.all([fill(org, 400), fill(org, 15, workerSummaries)]);
  await using raw = await connect();
  const all = { watermark: "0" };
  await raw.subscribe([RUNS, WORKERS, NOTIFICATIONS], { [RUNS]: all, [WORKERS]: all, [NOTIFICATIONS]: all });
  await until("three replays", () => raw.batches.filter((batch) => batch.replay_complete).length === 3, {
    on: raw,
  });
  const ends = raw.batches.flatMap(({ topic, replay_complete }, i) =>
    replay_complete ? [{ topic, i }] : [],
  );
  expect(ends.map(({ topic }) => topic)).toEqual([NOTIFICATIONS, WORKERS, RUNS]);
  // The short one needs two turns, and is not sent to the end of the queue in between.
  expect(ends[1]!.i).toBeLessThan(8);
  expect(raw.batches.filter(({ topic }) => topic === RUNS)).toHaveLength(40);
});

test.each([{ KHALA_TAIL_BYTES: "0" }, {}])(
  "puts at least one update into a batch, however small the limits, %o",
  async (tail) => {
    const { org, connect } = await viewer();
    await using small = await startServer(database.url, {
      settings: { ...tail, KHALA_REPLAY_MAX_BATCH_BYTES: "1024" },
    });
    const payload = { text: "x".repeat(10_000) };
    const first = await small.write({ key: `run:${org}-1`, version: 1, org, payload });
    await small.write({ key: `run:${org}-2`, version: 1, org, payload });
    await small.caughtUp(RUNS);
    await using raw = await connect(small);
    const { [RUNS]: now } = await raw.subscribe(RUNS);
    await raw.subscribe(RUNS, { [RUNS]: { epoch: now!.epoch!, watermark: String(first! - 1n) } });
    await raw.frame("the end of the replay", (frame) => frame.update_batch?.replay_complete);
    expect(raw.batches.map(({ updates }) => updates?.length)).toEqual([1, 1]);
    expect(raw.updates).toMatchObject([{ payload }, { payload }]);
  },
);

test("after an unsubscribe nothing of the topic arrives, and other topics continue", async () => {
  const { org, connect } = await viewer();
  await using raw = await connect();
  await raw.subscribe([RUNS, WORKERS]);
  expect(await raw.push("sync:v1", "unsubscribe", { topics: [RUNS, "never.subscribed"] })).toEqual({
    status: "ok",
    response: {},
  });
  await server.write({ key: `run:${org}`, version: 1, org, payload: {} });
  await server.write({ key: `worker:${org}`, version: 1, org, payload: {}, model: workerSummaries });
  await until("the worker", () => raw.updates.length, { on: raw });
  expect(raw.updates.map(({ topic }) => topic)).toEqual([WORKERS]);
});

test("an unsubscribe in the middle of a replay ends it", async () => {
  const { org, connect } = await viewer();
  await fill(org, 300);
  await using raw = await connect();
  raw.cast("sync:v1", "subscribe", { topics: [RUNS], resume_after: { [RUNS]: { watermark: "0" } } });
  const left = await raw.push("sync:v1", "unsubscribe", { topics: [RUNS] });
  expect(left.status).toBe("ok");
  const sent = raw.batches.length;
  expect(sent).toBeLessThan(30);
  await using witness = await connect();
  await witness.subscribe(RUNS);
  await server.write({ key: `run:${org}-0`, version: 2, org, payload: {} });
  await until("the witness's update", () => witness.updates.length, { on: witness });
  await settled(raw);
  expect(raw.batches).toHaveLength(sent);
  expect(raw.batches.some((batch) => batch.replay_complete)).toBe(false);
});

test("a second subscribe replaces the first: each update comes once, also during a replay", async () => {
  const { org, connect } = await viewer();
  await fill(org, 100);
  await using raw = await connect();
  const all = { topics: [RUNS], resume_after: { [RUNS]: { watermark: "0" } } };
  raw.cast("sync:v1", "subscribe", all);
  raw.cast("sync:v1", "subscribe", all);
  raw.cast("sync:v1", "subscribe", { topics: [RUNS, RUNS] });
  await raw.subscribe(RUNS);
  const before = raw.batches.length;
  await server.write({ key: `run:${org}-0`, version: 2, org, payload: {} });
  await until("the live update", () => raw.updates.find(({ doc_version }) => doc_version === "2"), {
    on: raw,
  });
  await settled(raw);
  expect(raw.batches.slice(before)).toHaveLength(1);
  expect(raw.updates.filter(({ doc_version }) => doc_version === "2")).toHaveLength(1);
});

test("a rejoin, or a leave, ends earlier subscriptions", async () => {
  const { org, connect } = await viewer();
  await using raw = await connect();
  await raw.subscribe(RUNS);
  await raw.join();
  await using witness = await connect();
  await witness.subscribe(RUNS);
  await server.write({ key: `run:${org}`, version: 1, org, payload: {} });
  await until("the witness's update", () => witness.updates.length, { on: witness });
  await settled(raw);
  expect(raw.frames).toEqual([]);
});

test("closed sockets leave no subscription behind, also during a replay", async () => {
  const { org, connect } = await viewer();
  await fill(org, 300);
  const live = () => server.metric("khala_sync_live_subscriptions", { topic: RUNS });
  const before = await live();
  for (let i = 0; i < 5; i++) {
    await using raw = await connect();
    raw.cast("sync:v1", "subscribe", { topics: [RUNS], resume_after: { [RUNS]: { watermark: "0" } } });
    await until("the replay's beginning", () => raw.batches.length > i, { on: raw });
  }
  await using last = await connect();
  await last.subscribe(RUNS, { [RUNS]: { watermark: "0" } });
  await last.frame("the end of the replay", (frame) => frame.update_batch?.replay_complete);
  expect(await live()).toBe(before + 1);
});

test("reports what is wrong with a subscribe", async () => {
  const { connect } = await viewer();
  await using raw = await connect();
  const refusal = async (payload: object) => {
    const { status, response } = await raw.push<{ error: { code: string; field?: string } }>(
      "sync:v1",
      "subscribe",
      payload,
    );
    return { status, ...response.error, message: undefined };
  };
  const bad = { status: "error", code: "invalid_request" };
  expect(await refusal({ topics: [] })).toMatchObject({ ...bad, field: "topics" });
  expect(await refusal({ topics: [RUNS], resume_after: { [WORKERS]: { watermark: "1" } } })).toMatchObject({
    ...bad,
    field: "resume_after",
  });
  expect(await refusal({ topics: [1] })).toMatchObject({ ...bad, field: "topics" });
  // An unknown field is ignored, so this names no topic.
  expect(await refusal({ topic: RUNS })).toMatchObject({ ...bad, field: "topics" });
});
