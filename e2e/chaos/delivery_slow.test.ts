import { RawClient, until } from "@khala/test-support/clients/clients";
import { applyUpdates, listAll, watermarkOf } from "@khala/test-support/clients/lists";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CLOSE_GRACE_MS } from "../../packages/server/src/gateway/sockets/connection.ts";

const BUFFER = 64 << 10;
/** A batch that is admitted while there is room, and what its updates have beside their payloads. */
const ONE_BATCH = (2 << 20) + (256 << 10);
// 48 MB: more than the buffer, and than what the system buffers for a connection; Linux goes up to 32 MB on the reader's side.
const DOCUMENTS = 240;
const PAYLOAD = { text: "x".repeat(200_000) };

/** Longer than a busy machine stands still: only a leap of the clock makes it pass. */
const SLOW_MS = 60_000;

const clock = new JumpClock({ leapOnlyMs: CLOSE_GRACE_MS });
let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, {
    clock,
    settings: {
      KHALA_SOCKET_BUFFER_BYTES: String(BUFFER),
      KHALA_SLOW_CONSUMER_MS: String(SLOW_MS),
      KHALA_IDLE_TIMEOUT_MS: "600000",
    },
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
  const follow = async (cursor?: object) => {
    const raw = await RawClient.connect(server.socketUrl, { token });
    await raw.join();
    await raw.subscribe(RUNS, cursor ? { [RUNS]: cursor } : {});
    return raw;
  };
  return { org, token, follow };
}

async function burst(org: string, version = 1): Promise<void> {
  for (let i = 0; i < DOCUMENTS; i += 20) {
    const write = (_: unknown, j: number) =>
      server.write({ key: `run:${org}-${i + j}`, version, org, payload: PAYLOAD });
    await Promise.all(Array.from({ length: 20 }, write));
  }
}

const waiting = () => server.metric("khala_gateway_waiting_bytes");
const full = () => until("a full socket", async () => (await waiting()) >= BUFFER);

/** Full, and what the system buffers is full too: nothing moves any more. */
async function stuck(): Promise<void> {
  let same = 0;
  let last = -1;
  await until("a socket that is stuck", async () => {
    const now = await waiting();
    same = now >= BUFFER && now === last ? same + 1 : 0;
    last = now;
    return same >= 5;
  });
}

test("a client that does not read is closed with 1013, delays nobody, uses bounded memory, and resumes", async () => {
  const { org, token, follow } = await viewer();
  await using fast = await follow();
  await using slow = await follow();
  const started = (await slow.push<{ watermarks: Record<string, object> }>("sync:v1", "heartbeat")).response
    .watermarks[RUNS]!;
  slow.ws.pause();
  await burst(org);
  await until("everything at the other client", () => fast.updates.length === DOCUMENTS, { on: fast });
  await stuck();
  expect(await waiting()).toBeLessThan(BUFFER + ONE_BATCH);
  const dropped = await server.metric("khala_sync_pushes_dropped_total", { topic: RUNS });

  clock.jump(0.9 * SLOW_MS);
  expect(await fast.push("phoenix", "heartbeat")).toMatchObject({ status: "ok" });
  clock.jump(0.2 * SLOW_MS);
  slow.ws.resume();
  expect(await slow.ended()).toEqual({ code: 1013, reason: "slow_consumer" });
  // What waited was flushed first, and the last frame says why.
  expect(slow.frames.at(-1)).toMatchObject({ error: { code: "slow_consumer" } });
  expect(slow.updates.length).toBeGreaterThan(0);
  expect(slow.updates.length).toBeLessThan(DOCUMENTS);
  expect(await server.metric("khala_sync_pushes_dropped_total", { topic: RUNS })).toBe(dropped + 1);
  expect(fast.closed).toBeUndefined();

  const state = new Map<string, string>();
  applyUpdates(state, slow.updates, watermarkOf(started));
  const cursor = slow.batches.at(-1)!.through;
  await using again = await follow(cursor);
  await again.frame("the replay", ({ update_batch }) => update_batch?.replay_complete);
  applyUpdates(state, again.updates, watermarkOf(cursor));
  expect(state).toEqual((await listAll(server, token, RUNS)).versions);
  expect(slow.updates.length + again.updates.length).toBe(DOCUMENTS);
});

test("a client that never reads again is disconnected, and leaves nothing behind", async () => {
  const { org, follow } = await viewer();
  await using deaf = await follow();
  const sockets = await server.metric("khala_gateway_sockets");
  const live = await server.metric("khala_sync_live_subscriptions", { topic: RUNS });
  deaf.ws.pause();
  await burst(org);
  await stuck();
  clock.jump(1.1 * SLOW_MS);
  clock.jump(6_000);
  await until("the socket's end", async () => (await server.metric("khala_gateway_sockets")) === sockets - 1);
  expect(await waiting()).toBe(0);
  expect(await server.metric("khala_sync_live_subscriptions", { topic: RUNS })).toBe(live - 1);
});

test("a client that is slow for a moment stays connected, and catches up in order", async () => {
  const { org, token, follow } = await viewer();
  await using raw = await follow();
  const start = (await raw.push<{ watermarks: Record<string, object> }>("sync:v1", "heartbeat")).response
    .watermarks[RUNS]!;
  const state = new Map<string, string>();
  for (const version of [1, 2]) {
    raw.ws.pause();
    await burst(org, version);
    await full();
    clock.jump(0.6 * SLOW_MS);
    raw.ws.resume();
    await until(
      "the newest",
      () =>
        raw.updates.at(-1)?.doc_key === `run:${org}-${DOCUMENTS - 1}` &&
        raw.updates.at(-1)?.doc_version === String(version),
      { on: raw },
    );
  }
  // Full for a while, twice: together longer than it may be at once.
  clock.jump(1_000);
  await raw.push("phoenix", "heartbeat");
  expect(raw.closed).toBeUndefined();
  applyUpdates(state, raw.updates, watermarkOf(start));
  expect(state).toEqual((await listAll(server, token, RUNS)).versions);
  expect(raw.batches.filter((batch) => batch.replay_complete)).toEqual([]);
  expect(await server.metric("khala_sync_pushes_retried_total", { topic: RUNS })).toBeGreaterThan(0);
});
