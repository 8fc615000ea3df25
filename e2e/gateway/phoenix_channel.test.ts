import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FrameSchema, HeartbeatSchema, SubscribedSchema, SubscribeSchema } from "@khala/contracts/sync/v1";
import { type SyncFrame, until } from "@khala/test-support/clients/clients";
import {
  answerOf,
  openPhoenix,
  PHOENIX_CLIENTS,
  type PhoenixChannel,
  type PhoenixClient,
} from "@khala/test-support/clients/phoenix";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

let orgs = 0;
const newOrg = () => `org-${++orgs}`;

async function connected(client: PhoenixClient, org = newOrg()) {
  const params = { token: await server.token({ org_id: org }) };
  const socket = await openPhoenix(client, server.socketUrl, { params, rejoinAfterMs: () => 20 });
  socket.connect();
  await until("a connection", () => socket.isConnected());
  return { socket, org, [Symbol.dispose]: () => socket.disconnect() };
}

/** Everything that arrives as `frame`. */
function framesOf(channel: PhoenixChannel): SyncFrame[] {
  const frames: SyncFrame[] = [];
  channel.on("frame", (frame) => frames.push(frame as SyncFrame));
  return frames;
}

const keysOf = (frames: readonly SyncFrame[]) =>
  frames.flatMap((frame) => frame.update_batch?.updates?.map((update) => update.doc_key) ?? []);

describe.each(PHOENIX_CLIENTS)("the npm client $version", (client) => {
  test("joins, subscribes and receives updates", async () => {
    using it = await connected(client);
    const channel = it.socket.channel("sync:v1");
    const frames = framesOf(channel);
    expect(await answerOf(channel.join())).toEqual({ status: "ok", response: {} });
    const subscribed = await answerOf(channel.push("subscribe", { topics: [RUNS] }));
    expect(subscribed).toMatchObject({ status: "ok", response: { subscription_id: expect.any(String) } });
    await server.write({ key: `run:${it.org}`, version: 1, org: it.org, payload: { hello: "wörld" } });
    await until("the update", () => keysOf(frames).includes(`run:${it.org}`));
    expect(frames[0]!.update_batch!.updates![0]).toMatchObject({ op: "upsert", payload: { hello: "wörld" } });
  });

  test("joins a second time: the old channel is closed, the new one works", async () => {
    using it = await connected(client);
    const first = it.socket.channel("sync:v1");
    await answerOf(first.join());
    let closed = 0;
    first.onClose(() => closed++);
    const second = it.socket.channel("sync:v1");
    const frames = framesOf(second);
    expect(await answerOf(second.join())).toMatchObject({ status: "ok" });
    await until("the first channel's end", () => closed > 0);
    expect(second.state).toBe("joined");
    expect(await answerOf(second.push("subscribe", { topics: [RUNS] }))).toMatchObject({ status: "ok" });
    await server.write({ key: `run:${it.org}`, version: 1, org: it.org, payload: {} });
    await until("the update", () => keysOf(frames).length > 0);
    expect(keysOf(frames)).toEqual([`run:${it.org}`]);
  });

  test("leaves, joins again, and receives nothing for the old join", async () => {
    using it = await connected(client);
    const left = it.socket.channel("sync:v1");
    const frames = framesOf(left);
    await answerOf(left.join());
    await answerOf(left.push("subscribe", { topics: [RUNS] }));
    let closed = false;
    left.onClose(() => {
      closed = true;
    });
    expect(await answerOf(left.leave())).toMatchObject({ status: "ok" });
    await until("the channel's end", () => closed);
    const again = it.socket.channel("sync:v1");
    const later = framesOf(again);
    await answerOf(again.join());
    await answerOf(again.push("subscribe", { topics: [RUNS] }));
    await server.write({ key: `run:${it.org}`, version: 1, org: it.org, payload: {} });
    await until("the update", () => keysOf(later).length > 0);
    expect(frames).toEqual([]);
  });

  test("stops joining a channel that does not exist", async () => {
    using it = await connected(client);
    const channel = it.socket.channel("nothing:here");
    let closed = false;
    channel.onClose(() => {
      closed = true;
    });
    expect(await answerOf(channel.join())).toEqual({
      status: "error",
      response: { reason: "unmatched topic" },
    });
    await until("the channel's end", () => closed);
    expect(channel.state).toBe("closed");
  });

  test("receives the error of a refused join and stops retrying", async () => {
    using it = await connected(client);
    const channel = it.socket.channel("sync:v1", { encoding: "xml" });
    const { status, response } = await answerOf(channel.join());
    expect({ status, response }).toMatchObject({
      status: "error",
      response: { error: { code: "invalid_request", field: "encoding" } },
    });
    await until("the channel's end", () => channel.state === "closed");
  });

  test("gets replies to heartbeats", async () => {
    const params = { token: await server.token() };
    using socket = await openPhoenix(client, server.socketUrl, { params, heartbeatIntervalMs: 3_000 });
    let closes = 0;
    socket.onClose(() => closes++);
    const answers: unknown[] = [];
    socket.onMessage(({ topic, payload }) => topic === "phoenix" && answers.push(payload));
    socket.connect();
    await until("an answer", () => answers.length > 0);
    expect(answers[0]).toEqual({ status: "ok", response: {} });
    expect(closes).toBe(0);
  });

  test("speaks protobuf both ways when it joins with the encoding proto", async () => {
    using it = await connected(client);
    const channel = it.socket.channel("sync:v1", { encoding: "proto" });
    const frames: ArrayBuffer[] = [];
    channel.on("frame", (frame) => frames.push(frame as ArrayBuffer));
    await answerOf(channel.join());
    const subscribe = toBinary(SubscribeSchema, create(SubscribeSchema, { topics: [RUNS] }));
    const answer = await answerOf<ArrayBuffer>(channel.push("subscribe", subscribe.slice().buffer));
    expect(answer.status).toBe("ok");
    const subscribed = fromBinary(SubscribedSchema, new Uint8Array(answer.response));
    expect(Object.keys(subscribed.currentWatermarks)).toEqual([RUNS]);
    await server.write({ key: `run:${it.org}`, version: 7, org: it.org, payload: { b: 1, a: [] } });
    await until("the update", () => frames.length > 0);
    const { body } = fromBinary(FrameSchema, new Uint8Array(frames[0]!));
    if (body.case !== "updateBatch") throw new Error(`The frame is a ${body.case}.`);
    const [update] = body.value.updates;
    expect(update).toMatchObject({ docKey: `run:${it.org}`, docVersion: 7n, op: "upsert" });
    expect(Buffer.from(update!.payload!).toString()).toBe('{"a":[],"b":1}');
    const beat = await answerOf<ArrayBuffer>(channel.push("heartbeat", new ArrayBuffer(0)));
    const { watermarks } = fromBinary(HeartbeatSchema, new Uint8Array(beat.response));
    expect(watermarks[RUNS]).toMatchObject({ watermark: body.value.through!.watermark });
  });

  test("rejoins after a restart of the server, and resumes from its cursor", async () => {
    await using own = await testDatabase();
    const settings = { KHALA_PORT: "0", KHALA_DRAIN_MS: "1000" };
    let running = await startServer(own.url, { settings });
    const { port } = new URL(running.url);
    try {
      const params = { token: await running.token() };
      using socket = await openPhoenix(client, running.socketUrl, { params, rejoinAfterMs: () => 20 });
      let cursor: object | undefined;
      const joins: object[] = [];
      const channel = socket.channel("sync:v1", () => ({ cursor }));
      const keys: string[] = [];
      channel.on("frame", (payload) => {
        const { update_batch: batch } = payload as SyncFrame;
        if (!batch) return;
        keys.push(...(batch.updates ?? []).map((update) => update.doc_key));
        cursor = batch.through;
      });
      // Runs at every join, the automatic ones too.
      channel.join().receive("ok", () => {
        joins.push({ cursor });
        const resume = cursor ? { resume_after: { [RUNS]: cursor } } : {};
        channel.push("subscribe", { topics: [RUNS], ...resume });
      });
      socket.connect();
      await until("the first subscription", () => running.metric("khala_sync_live_subscriptions"));
      await running.write({ key: "run:1", version: 1, org: "org-1", payload: { n: 1 } });
      await until("the first update", () => keys.length === 1);
      await running[Symbol.asyncDispose]();
      running = await startServer(own.url, { settings: { ...settings, KHALA_PORT: port } });
      await running.write({ key: "run:2", version: 1, org: "org-1", payload: { n: 2 } });
      await until("the second update", () => keys.length >= 2);
      expect(keys).toEqual(["run:1", "run:2"]);
      expect(joins).toHaveLength(2);
    } finally {
      await running[Symbol.asyncDispose]();
    }
  });
});

test("a cursor with a damaged watermark is refused by name, in JSON and in proto", async () => {
  using it = await connected(PHOENIX_CLIENTS.at(-1)!);
  const channel = it.socket.channel("sync:v1");
  await answerOf(channel.join());
  const refused = {
    status: "error",
    response: { error: { code: "invalid_request", field: "resume_after" } },
  };
  for (const watermark of ["-1", -1, "abc", "", 1.5, "1.5", "99999999999999999999", true, {}])
    expect(
      await answerOf(channel.push("subscribe", { topics: [RUNS], resume_after: { [RUNS]: { watermark } } })),
      JSON.stringify(watermark),
    ).toMatchObject(refused);
  const sent = create(SubscribeSchema, { topics: [RUNS], resumeAfter: { [RUNS]: { watermark: -1n } } });
  const bytes = toBinary(SubscribeSchema, sent);
  const payload = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  expect(await answerOf(channel.push("subscribe", payload as unknown as object))).toMatchObject(refused);
});

test("an error frame has no fields that belong to other errors", async () => {
  using it = await connected(PHOENIX_CLIENTS.at(-1)!);
  const channel = it.socket.channel("sync:v1");
  const frames = framesOf(channel);
  await answerOf(channel.join());
  const sent = { epoch: "other", watermark: "1" };
  await answerOf(channel.push("subscribe", { topics: [RUNS], resume_after: { [RUNS]: sent } }));
  const [frame] = await until("the frame", () => frames.length > 0 && frames);
  expect(Object.keys(frame!.error!).sort()).toEqual(["code", "message", "topics"]);
});

test.each(["ops:v1", "conversation:c1"])(
  "a token with fewer rights that is pushed on %s ends the subscriptions of sync:v1",
  async (other) => {
    using it = await connected(PHOENIX_CLIENTS.at(-1)!);
    const scopes = [RUNS, "ops", "chat"];
    const full = await server.token({ org_id: it.org, scopes });
    const lesser = await server.token({ org_id: it.org, scopes: ["ops", "chat"] });
    const sync = it.socket.channel("sync:v1");
    const frames = framesOf(sync);
    await answerOf(sync.join());
    expect(await answerOf(sync.push("auth", { token: full }))).toMatchObject({ status: "ok" });
    const beside = it.socket.channel(other);
    expect(await answerOf(beside.join())).toMatchObject({ status: "ok" });
    await answerOf(sync.push("subscribe", { topics: [RUNS] }));
    await server.write({ key: "run:before", version: 1, org: it.org, payload: {} });
    await until("the update", () => keysOf(frames).length > 0);

    expect(await answerOf(beside.push("auth", { token: lesser }))).toMatchObject({ status: "ok" });
    await until("the end", () => frames.some(({ error }) => error?.code === "stale_cursor"));
    expect(await answerOf(sync.push("subscribe", { topics: [RUNS] }))).toMatchObject({
      status: "error",
      response: { error: { code: "forbidden_topic" } },
    });
    await server.write({ key: "run:after", version: 1, org: it.org, payload: {} });
    await server.caughtUp(RUNS);
    expect(await answerOf(sync.push("heartbeat", {}))).toMatchObject({ response: { watermarks: {} } });
    expect(keysOf(frames)).toEqual(["run:before"]);
  },
);
