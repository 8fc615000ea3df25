import { RawClient, until } from "@khala/test-support/clients/clients";
import { delivered, followRuns } from "@khala/test-support/clients/followers";
import { listAll, watermarkOf } from "@khala/test-support/clients/lists";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import {
  appendToRun,
  NOTIFICATIONS,
  RUNS,
  startServer,
  type TestServer,
} from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const clock = new JumpClock();
let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { clock });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

let orgs = 0;
const newOrg = () => `org-${++orgs}`;

const docStatus = async (token: string, key: string) =>
  (await server.request(`/sync/v1/doc/${key}`, token)).status;

describe("another org", () => {
  test("sees nothing of a run: no update, no document, no entry in a list", async () => {
    const [ours, theirs] = [newOrg(), newOrg()];
    await using owner = await followRuns(server, ours, "owner");
    await using stranger = await followRuns(server, theirs, "owner");
    const run = `secret-${ours}`;
    await appendToRun(server, owner.token, run, { type: "run.started", data: { title: "secret" } });
    await until("our own update", () => owner.updates.length, { on: owner });
    await delivered(server, stranger);
    expect(stranger.frames).toEqual([]);
    expect(await docStatus(owner.token, `run:${run}`)).toBe(200);
    expect((await listAll(server, stranger.token, RUNS)).documents).toEqual([]);
    const replayed = await RawClient.connect(server.socketUrl, { token: stranger.token });
    await using _ = replayed;
    await replayed.join();
    await replayed.subscribe(RUNS, { [RUNS]: { watermark: "0" } });
    await replayed.frame("the replay", ({ update_batch }) => update_batch?.replay_complete);
    expect(replayed.updates).toEqual([]);
  });

  test("cannot tell a foreign document from a missing one", async () => {
    const [ours, theirs] = [newOrg(), newOrg()];
    const stranger = await server.token({ org_id: theirs });
    await server.write({ key: `run:here-${ours}`, version: 1, org: ours, payload: {} });
    await server.write({
      key: `run:mine-${ours}`,
      version: 1,
      org: theirs,
      payload: {},
      audience: ["somebody else"],
    });
    const answers = [];
    for (const key of [`run:here-${ours}`, `run:mine-${ours}`, `run:gone-${ours}`, `unknown:here-${ours}`]) {
      const response = await server.request(`/sync/v1/doc/${key}`, stranger);
      const headers = [...response.headers.keys()];
      answers.push({
        status: response.status,
        headers,
        body: (await response.text()).replaceAll(key, "KEY"),
      });
    }
    expect(answers[0]).toMatchObject({ status: 404, body: expect.stringContaining('"not_found"') });
    for (const answer of answers) expect(answer).toEqual(answers[0]);
  });

  test("cannot append to a run: the same id is a run of its own", async () => {
    const [ours, theirs] = [newOrg(), newOrg()];
    await appendToRun(server, await server.token({ org_id: ours }), `run-${ours}`, { type: "run.started" });
    const stranger = await server.token({ org_id: theirs });
    const body = JSON.stringify({ events: [{ event_id: "1", type: "run.stopped", data: {} }] });
    const headers = { "content-type": "application/json" };
    const response = await server.request(`/runtime/v1/runs/run-${ours}/events`, stranger, {
      method: "POST",
      headers,
      body,
    });
    expect([response.status, await response.json()]).toEqual([201, { seq: "1" }]);
    const owner = await server.token({ org_id: ours });
    const events = await server.request(`/runtime/v1/runs/run-${ours}/events`, owner);
    expect(await events.json()).toMatchObject({ events: [{ seq: "1", type: "run.started" }] });
  });
});

describe("progress", () => {
  test("moves over rows of others: the heartbeat includes them, and its position can be resumed", async () => {
    const [ours, theirs] = [newOrg(), newOrg()];
    await using raw = await followRuns(server, ours, "ann");
    for (let i = 0; i < 30; i++)
      await server.write({ key: `run:${theirs}-${i}`, version: 1, org: theirs, payload: {} });
    const bobs = { key: `run:${ours}`, version: 1, org: ours, payload: {}, audience: ["bob"] };
    const last = await server.write(bobs);
    await server.caughtUp(RUNS);
    clock.jump(16_000);
    const { heartbeat } = await raw.frame("a heartbeat", (frame) => frame.heartbeat);
    const through = heartbeat!.watermarks![RUNS]!;
    expect(watermarkOf(through)).toBe(last);
    expect(raw.updates).toEqual([]);
    await raw.subscribe(RUNS, { [RUNS]: through });
    const { update_batch } = await raw.frame("the replay", (frame) => frame.update_batch?.replay_complete);
    expect(update_batch).toMatchObject({ updates: [], through });
  });

  test("of a batch covers the rows in it that the viewer cannot see", async () => {
    const [ours, theirs] = [newOrg(), newOrg()];
    await using raw = await followRuns(server, ours, "ann");
    const writes = Array.from({ length: 20 }, (_, i) => {
      const org = i === 7 ? ours : theirs;
      return { key: `run:${org}-${i}`, version: 1, org, payload: {} };
    });
    const watermarks = await server.writeAll(writes);
    await until("the update", () => raw.batches.length, { on: raw });
    expect(raw.updates).toHaveLength(1);
    expect(watermarkOf(raw.batches[0]!.through)).toBeGreaterThanOrEqual(watermarks[7]!);
    await server.caughtUp(RUNS);
    const { response } = await raw.push<{ watermarks: Record<string, object> }>("sync:v1", "heartbeat");
    expect(watermarkOf(response.watermarks[RUNS])).toBe(watermarks.at(-1));
  });
});

test.each(["json", "proto"])("sockets of the same viewer get the same bytes, in %s", async (encoding) => {
  const org = newOrg();
  await using one = await followRuns(server, org, "ann", { encoding });
  await using two = await followRuns(server, org, "ann", { encoding });
  await using other = await followRuns(server, org, "bob", { encoding });
  await server.write({ key: `run:${org}`, version: 1, org, payload: { text: "x".repeat(100) } });
  await server.write({ key: `run:${org}-large`, version: 1, org, payload: { text: "x".repeat(100_000) } });
  const frames = async (raw: RawClient) => {
    await until("two updates", () => raw.updates.length === 2, { on: raw });
    return Buffer.concat(raw.received.flatMap(({ event, raw: bytes }) => (event === "frame" ? [bytes] : [])));
  };
  const [first, second, third] = [await frames(one), await frames(two), await frames(other)];
  expect(second.equals(first)).toBe(true);
  // Another viewer's differ in what names its rights, and in nothing else.
  const differing = first.filter((byte, i) => third[i] !== byte).length;
  expect(third).toHaveLength(first.length);
  expect(differing).toBeGreaterThan(0);
  expect(differing).toBeLessThanOrEqual(12 * 2);
});

describe("scopes", () => {
  test("a topic that the token does not name is forbidden, whether it exists or not", async () => {
    const token = await server.token({ scopes: [NOTIFICATIONS, "ops"] });
    await using raw = await RawClient.connect(server.socketUrl, { token });
    await raw.join();
    for (const topic of [RUNS, "no.such_topic", "ops"]) {
      const answer = await raw.push("sync:v1", "subscribe", { topics: [NOTIFICATIONS, topic] });
      expect(answer).toMatchObject({ status: "error", response: { error: { code: "forbidden_topic" } } });
      const listed = await server.request(`/sync/v1/list/${topic}`, token);
      expect([listed.status, await listed.json()]).toMatchObject([
        403,
        { error: { code: "forbidden_topic" } },
      ]);
    }
    // Refused as a whole: nothing is followed.
    const { response } = await raw.push("sync:v1", "heartbeat");
    expect(response).toEqual({ watermarks: {} });
  });

  test("a topic that the token names and that does not exist is not found", async () => {
    const token = await server.token({ scopes: ["no.such_topic"] });
    await using raw = await RawClient.connect(server.socketUrl, { token });
    await raw.join();
    const answer = await raw.push("sync:v1", "subscribe", { topics: ["no.such_topic"] });
    expect(answer).toMatchObject({
      status: "error",
      response: { error: { code: "not_found", field: "topics" } },
    });
  });

  test("a document of a topic that the token does not name looks like a missing one", async () => {
    const org = newOrg();
    await server.write({ key: `run:${org}`, version: 1, org, payload: {} });
    expect(await docStatus(await server.token({ org_id: org }), `run:${org}`)).toBe(200);
    expect(await docStatus(await server.token({ org_id: org, scopes: [NOTIFICATIONS] }), `run:${org}`)).toBe(
      404,
    );
  });

  test("an append needs runtime:write", async () => {
    const token = await server.token({ scopes: [RUNS] });
    const headers = { "content-type": "application/json" };
    const response = await server.request("/runtime/v1/runs/r/events", token, {
      method: "POST",
      headers,
      body: "{}",
    });
    expect([response.status, await response.json()]).toMatchObject([
      403,
      { error: { code: "missing_scope" } },
    ]);
  });
});
