import { runSummaries } from "@khala/server";
import { type Cursor, RawClient, until } from "@khala/test-support/clients/clients";
import { applyUpdates, listAll, versionsOf, watermarkOf } from "@khala/test-support/clients/lists";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer, WORKERS } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { trimTopic } from "../../packages/server/src/sync/rebuild/retention.ts";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { settings: { KHALA_POLL_MS: "20" } });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

async function joined(token: string, at = server): Promise<RawClient> {
  const raw = await RawClient.connect(at.socketUrl, { token });
  await raw.join();
  return raw;
}

async function fill(org: string, count: number, version = 1): Promise<void> {
  const document = (_: unknown, i: number) => ({
    key: `run:${org}-${i}`,
    version,
    org,
    payload: { version },
  });
  await server.writeAll(Array.from({ length: count }, document));
  await server.caughtUp(RUNS);
}

/** Subscribes from a cursor that must be answered with stale_cursor. */
async function staleAnswer(raw: RawClient, cursor: Cursor) {
  await raw.subscribe(RUNS, { [RUNS]: cursor });
  const { error } = await raw.frame("an error frame", (frame) => frame.error);
  expect(error).toMatchObject({
    code: "stale_cursor",
    message: expect.stringContaining(`/sync/v1/list/${RUNS}`),
  });
  expect(error!.topics).toHaveLength(1);
  return error!.topics![0]!;
}

/** What a client does after stale_cursor: list, subscribe from its cursor. Everything is there, and nothing twice. */
async function startAnew(raw: RawClient, token: string, org: string): Promise<void> {
  const before = raw.batches.length;
  const { cursor, versions } = await listAll(server, token, RUNS);
  await raw.subscribe(RUNS, { [RUNS]: cursor });
  await until("the replay", () => raw.batches.slice(before).some((batch) => batch.replay_complete), {
    on: raw,
  });
  expect(raw.batches.slice(before).flatMap(({ updates = [] }) => updates)).toEqual([]);
  await fill(org, 3, 1_000);
  await until(
    "the newest",
    () => raw.updates.filter(({ doc_version }) => doc_version === "1000").length === 3,
    { on: raw },
  );
  applyUpdates(
    versions,
    raw.batches.slice(before).flatMap(({ updates = [] }) => updates),
    watermarkOf(cursor),
  );
  expect(versions).toEqual(versionsOf((await listAll(server, token, RUNS)).documents));
}

describe("answers a cursor that cannot be continued with stale_cursor, the cursor and the floor", () => {
  test("a purged one", async () => {
    const org = "purged";
    const token = await server.token({ org_id: org });
    await using raw = await joined(token);
    const { [RUNS]: sent } = await raw.subscribe(RUNS);
    await fill(org, 20);
    await trimTopic(database.database, runSummaries, 0);
    await until("the floor", async () => (await server.khala.sync.hub.feed(RUNS)).bounds.floor >= 20n);
    await using late = await joined(token);
    const { sent: named, floor } = await staleAnswer(late, sent!);
    expect(watermarkOf(named)).toBe(watermarkOf(sent));
    expect(named.epoch).toBe(sent!.epoch);
    expect(floor).toEqual({
      epoch: sent!.epoch,
      watermark: String((await server.khala.sync.hub.feed(RUNS)).bounds.floor),
    });
    await startAnew(late, token, org);
  });

  test("one that is purged while it waits for the database", async () => {
    const org = "purged-meanwhile";
    const token = await server.token({ org_id: org });
    // It keeps nothing in memory, and learns of the floor only when it reads.
    const settings = { KHALA_TAIL_BYTES: "0", KHALA_POLL_MS: "600000" };
    await using slow = await startServer(database.url, { settings });
    await using raw = await joined(token, slow);
    const { [RUNS]: sent } = await raw.subscribe(RUNS);
    await fill(org, 20);
    await slow.caughtUp(RUNS);
    await trimTopic(database.database, runSummaries, 0);
    await using late = await joined(token, slow);
    const { sent: named } = await staleAnswer(late, sent!);
    expect(named).toEqual(sent);
  });

  test("one of another epoch", async () => {
    const org = "foreign-epoch";
    const token = await server.token({ org_id: org });
    await using raw = await joined(token);
    const { [RUNS]: now } = await raw.subscribe(RUNS);
    const sent = { ...now, epoch: now!.epoch!.replace(/^./, (first) => (first === "0" ? "1" : "0")) };
    expect(await staleAnswer(raw, sent)).toMatchObject({ topic: RUNS, sent, floor: { epoch: now!.epoch } });
    await startAnew(raw, token, org);
  });

  test("a watermark without an epoch, unless it is 0", async () => {
    const token = await server.token({ org_id: "no-epoch" });
    await using raw = await joined(token);
    expect(await staleAnswer(raw, { watermark: "1" })).toMatchObject({ sent: { watermark: "1" } });
  });

  test("one from the future", async () => {
    const org = "future";
    const token = await server.token({ org_id: org });
    await using raw = await joined(token);
    const { [RUNS]: now } = await raw.subscribe(RUNS);
    const sent = { epoch: now!.epoch!, watermark: String(watermarkOf(now) + 1n) };
    expect(await staleAnswer(raw, sent)).toMatchObject({ sent, floor: { epoch: now!.epoch } });
    await startAnew(raw, token, org);
  });

  test.each([
    { whose: "another subject", claims: { sub: "user-2" } },
    { whose: "another org", claims: { org_id: "org-of-others" } },
    { whose: "the same subject with another scope", claims: { scopes: [RUNS] } },
    { whose: "the same subject before its claims changed", claims: { claims_version: 1 } },
  ])("one of $whose", async ({ claims }) => {
    const org = `rights-${JSON.stringify(claims)}`;
    const mine = { org_id: org, scopes: [RUNS, WORKERS], claims_version: 2 };
    await using other = await joined(await server.token({ ...mine, ...claims }));
    const { [RUNS]: sent } = await other.subscribe(RUNS);
    const token = await server.token(mine);
    await using raw = await joined(token);
    const { floor } = await staleAnswer(raw, sent!);
    expect(floor.epoch).not.toBe(sent!.epoch);
    await startAnew(raw, token, org);
  });
});

test("a new token of the same subject continues its cursor, even with another right beside its topics", async () => {
  const org = "refreshed";
  const scopes = [RUNS];
  await using before = await joined(await server.token({ org_id: org, scopes }));
  const { [RUNS]: cursor } = await before.subscribe(RUNS);
  await fill(org, 1);
  await using after = await joined(await server.token({ org_id: org, scopes: [RUNS, "runtime:write"] }));
  await after.subscribe(RUNS, { [RUNS]: cursor! });
  await until("the update", () => after.updates.length, { on: after });
  expect(after.frames.filter((frame) => frame.error)).toEqual([]);
});

test("does not follow a stale topic, and follows the others", async () => {
  const org = "two-topics";
  const token = await server.token({ org_id: org });
  await using raw = await joined(token);
  await raw.subscribe([RUNS, WORKERS], {
    [RUNS]: { epoch: "other", watermark: "1" },
    [WORKERS]: { watermark: "0" },
  });
  await raw.frame("the stale topic", ({ error }) => error?.topics?.[0]?.topic === RUNS);
  await raw.frame(
    "the other's replay",
    ({ update_batch }) => update_batch?.topic === WORKERS && update_batch.replay_complete,
  );
  const { response } = await raw.push<{ watermarks: object }>("sync:v1", "heartbeat");
  expect(Object.keys(response.watermarks)).toEqual([WORKERS]);
});

test("a list's cursor ahead of the gateway's own position is not stale", async () => {
  const org = "newer";
  const token = await server.token({ org_id: org });
  // It would not look at the database by itself for minutes.
  await using behind = await startServer(database.url, { settings: { KHALA_POLL_MS: "600000" } });
  await using raw = await joined(token, behind);
  await raw.subscribe(RUNS);
  await fill(org, 5);
  const { cursor } = await listAll(behind, token, RUNS);
  const current = await raw.subscribe(RUNS, { [RUNS]: cursor });
  expect(current[RUNS]).toEqual(cursor);
  await raw.frame("the replay", ({ update_batch }) => update_batch?.replay_complete);
  expect(raw.frames.filter((frame) => frame.error)).toEqual([]);
});

test("a gateway suspended until all its unread rows were purged continues", async () => {
  const org = "slept";
  const token = await server.token({ org_id: org });
  await using sleeper = await startServer(database.url, { settings: { KHALA_POLL_MS: "600000" } });
  await using raw = await joined(token, sleeper);
  const { [RUNS]: before } = await raw.subscribe(RUNS);
  await fill(org, 20);
  await trimTopic(database.database, runSummaries, 0);
  sleeper.khala.sync.hub.recheck();
  const { error } = await raw.frame("stale_cursor", (frame) => frame.error);
  expect(error).toMatchObject({ code: "stale_cursor", topics: [{ topic: RUNS, sent: before }] });
  const { cursor, versions } = await listAll(sleeper, token, RUNS);
  expect(versions.size).toBe(20);
  await raw.subscribe(RUNS, { [RUNS]: cursor });
  await raw.frame("the replay", ({ update_batch }) => update_batch?.replay_complete);
  expect(raw.frames.filter((frame) => frame.error)).toHaveLength(1);
});
