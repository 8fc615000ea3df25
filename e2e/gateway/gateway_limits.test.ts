import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { RawClient, Refused, until } from "@khala/test-support/clients/clients";
import { testContext } from "@khala/test-support/kit/context";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { NOTIFICATIONS, RUNS, startServer, WORKERS } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { memoryRevocations } from "../../packages/server/src/gateway/auth/revocations.ts";
import { gatewayMetrics } from "../../packages/server/src/gateway/metrics.ts";
import { type ChannelDefinition, ok, type Reply } from "../../packages/server/src/gateway/phoenix/channel.ts";
import { phoenixEndpoint } from "../../packages/server/src/gateway/phoenix/socket.ts";
import { CLOSE_GRACE_MS } from "../../packages/server/src/gateway/sockets/connection.ts";
import { openSockets } from "../../packages/server/src/gateway/sockets/sockets.ts";

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());

describe("sockets", () => {
  test("are limited per subject; a closed one frees its slot", async () => {
    await using server = await startServer(database.url, {
      settings: { KHALA_MAX_SOCKETS_PER_SUBJECT: "2" },
    });
    const [token, other] = [await server.token(), await server.token({ sub: "user-2" })];
    const connect = (by = token) => RawClient.connect(server.socketUrl, { token: by });
    await using first = await connect();
    await using _second = await connect();
    await expect(connect()).rejects.toMatchObject({
      status: 429,
      body: { error: { code: "limit_exceeded" } },
    });
    await using _others = await connect(other);
    await first[Symbol.asyncDispose]();
    await using _third = await until("room", () => connect().catch(refused));
  });

  test("are limited per server, also for concurrent connects", async () => {
    await using server = await startServer(database.url, {
      settings: { KHALA_MAX_SOCKETS: "3", KHALA_MAX_SOCKETS_PER_ORG: "3" },
    });
    const token = await server.token();
    const attempts = Array.from({ length: 12 }, () =>
      RawClient.connect(server.socketUrl, { token }).catch(refused),
    );
    const open = (await Promise.all(attempts)).filter((client) => client !== undefined);
    expect(open).toHaveLength(3);
    for (const client of open) await client[Symbol.asyncDispose]();
  });

  test("of one org never take the slots of another's", async () => {
    const settings = { KHALA_MAX_SOCKETS: "10", KHALA_MAX_SUBSCRIPTIONS_PER_ORG: "2" };
    await using server = await startServer(database.url, { settings });
    const token = await server.token({ org_id: "large" });
    const attempts = Array.from({ length: 12 }, () =>
      RawClient.connect(server.socketUrl, { token }).catch((error: Refused) => error),
    );
    const answers = await Promise.all(attempts);
    const open = answers.filter((client) => client instanceof RawClient);
    expect(open).toHaveLength(9);
    expect(answers.find((answer) => !(answer instanceof RawClient))).toMatchObject({
      status: 429,
      body: { error: { code: "limit_exceeded", field: "sockets", retry_after_ms: 1_000 } },
    });
    await using other = await RawClient.connect(server.socketUrl, {
      token: await server.token({ org_id: "small" }),
    });

    for (const client of [...open.slice(0, 3), other]) await client.join();
    await open[0]!.subscribe([RUNS]);
    await open[1]!.subscribe([RUNS]);
    expect(await open[2]!.push("sync:v1", "subscribe", { topics: [RUNS] })).toMatchObject({
      status: "error",
      response: { error: { code: "limit_exceeded", field: "subscriptions" } },
    });
    await other.subscribe([RUNS]);
    await open[0]!.push("sync:v1", "unsubscribe", { topics: [RUNS] });
    await open[2]!.subscribe([RUNS]);
    expect(await server.metric("khala_quota_rejections_total", { quota: "subscriptions" })).toBe(1);
    for (const client of open) await client[Symbol.asyncDispose]();
  });

  test("limits a socket's topics over all of its subscribes", async () => {
    await using server = await startServer(database.url, { settings: { KHALA_MAX_TOPICS: "2" } });
    await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
    await raw.join();
    await raw.subscribe([RUNS, WORKERS]);
    await raw.subscribe([RUNS]);
    const refusal = await raw.push("sync:v1", "subscribe", { topics: [NOTIFICATIONS] });
    expect(refusal).toMatchObject({
      status: "error",
      response: { error: { code: "limit_exceeded", field: "topics" } },
    });
    await raw.push("sync:v1", "unsubscribe", { topics: [WORKERS] });
    await raw.subscribe([NOTIFICATIONS]);
  });
});

/** The sockets alone, with a channel that answers when the test says so. */
async function openRooms(limits: { channels: number }) {
  const context = await testContext();
  const viewer = {
    subject: "s",
    org: "o",
    scopes: new Set<string>(),
    claimsVersion: "0",
    jti: "j",
    kid: "k",
  };
  const held: ((reply: Reply) => void)[] = [];
  const rooms: ChannelDefinition = {
    topic: "room:",
    join: "document.read",
    events: { ask: "document.read" },
    open: () => ({
      receive: () => new Promise((resolve) => held.push(resolve)),
      viewerChanged() {},
      onWritable() {},
      heartbeat() {},
      sendError() {},
      close() {},
    }),
  };
  const sockets = openSockets(context, {
    verifier: { verify: async () => ({ ...viewer, expiresAt: context.clock.now() + 600_000 }) },
    revocations: memoryRevocations(context.clock),
    metrics: gatewayMetrics(context.telemetry.meter),
    origins: [],
    endpoints: [phoenixEndpoint(context, { channels: [rooms], maxChannels: limits.channels })],
    limits: {
      sockets: 10,
      socketsPerSubject: 10,
      socketsPerOrg: 10,
      frameBytes: 65_536,
      bufferBytes: 65_536,
      slowMs: 10_000,
      idleMs: 60_000,
      heartbeatMs: 60_000,
    },
  });
  const http = createServer().on("upgrade", (request, stream, head) =>
    sockets.upgrade(request, stream, head),
  );
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const { port } = http.address() as AddressInfo;
  return {
    url: `ws://127.0.0.1:${port}/socket`,
    held,
    async [Symbol.asyncDispose]() {
      await sockets.drain(1_000);
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

describe("channels", () => {
  test("a socket has at most 100; another is refused until one is left", async () => {
    await using rooms = await openRooms({ channels: 100 });
    await using raw = await RawClient.connect(rooms.url, { token: "any" });
    for (let i = 0; i < 100; i++) raw.cast(`room:${i}`, "phx_join");
    const refusal = await raw.push("room:100", "phx_join");
    expect(refusal).toMatchObject({ status: "error", response: { error: { code: "limit_exceeded" } } });
    const joined = raw.received.filter(({ payload }) => (payload as { status?: string }).status === "ok");
    expect(joined).toHaveLength(100);
    // Joining one again is not one more.
    expect(await raw.push("room:7", "phx_join")).toMatchObject({ status: "ok" });
    await raw.push("room:7", "phx_leave");
    expect(await raw.push("room:100", "phx_join")).toMatchObject({ status: "ok" });
  });

  test("closes a client with too many unanswered pushes", async () => {
    await using rooms = await openRooms({ channels: 1 });
    await using raw = await RawClient.connect(rooms.url, { token: "any" });
    await raw.push("room:1", "phx_join");
    for (let i = 0; i < 64; i++) raw.cast("room:1", "ask");
    await until("the pushes", () => rooms.held.length);
    // One is being handled and the others wait for it: within the limit, so all of them are answered.
    expect(raw.closed).toBeUndefined();
    for (let i = 0; i < 64; i++) {
      const answer = await until("a push in hand", () => rooms.held.shift());
      answer(ok());
    }
    await until("all answers", () => raw.received.length === 65, { on: raw });
    for (let i = 0; i < 200; i++) raw.cast("room:1", "ask");
    expect(await raw.ended()).toEqual({ code: 4429, reason: "limit_exceeded" });
    expect(rooms.held.length).toBeLessThanOrEqual(1);
  });
});

test("pauses, then closes a client that does not read its answers", async () => {
  const clock = new JumpClock({ leapOnlyMs: CLOSE_GRACE_MS });
  const settings = { KHALA_SOCKET_BUFFER_BYTES: "16384" };
  await using server = await startServer(database.url, { settings, clock });
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await using other = await RawClient.connect(server.socketUrl, { token: await server.token() });
  raw.ws.pause();
  // Far more than the buffers of both machines hold.
  const flood = JSON.stringify([null, "x".repeat(10_000), "phoenix", "heartbeat", {}]);
  for (let i = 0; i < 3_000; i++) raw.send(flood);
  await until("a full socket", async () => (await server.metric("khala_gateway_waiting_bytes")) >= 16_384);
  expect(await server.metric("khala_gateway_waiting_bytes")).toBeLessThan(1 << 20);
  expect(await other.push("phoenix", "heartbeat")).toMatchObject({ status: "ok" });
  // What it still wants to say stays with it.
  expect(raw.ws.bufferedAmount).toBeGreaterThan(0);
  clock.jump(1_000);
  clock.jump(11_000);
  raw.ws.resume();
  expect(await raw.ended()).toEqual({ code: 1013, reason: "slow_consumer" });
});

function refused(error: unknown): undefined {
  if (!(error instanceof Refused)) throw error;
}
