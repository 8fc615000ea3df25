import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { testContext } from "@khala/test-support/kit/context";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { until } from "@khala/test-support/kit/until";
import { expect, test } from "vitest";
import { WebSocket } from "ws";
import { memoryRevocations } from "../auth/revocations.ts";
import { gatewayMetrics } from "../metrics.ts";
import { CLOSE_GRACE_MS, type Connection } from "./connection.ts";
import { openSockets } from "./sockets.ts";

const IDLE_MS = 90_000;

/** A server with only sockets. `/pinged` pings its clients with each heartbeat, as `/ws` does; `/silent` does not, as Phoenix. */
async function openServer() {
  const clock = new JumpClock({ leapOnlyMs: CLOSE_GRACE_MS });
  const context = await testContext({ clock });
  const endpoint = (path: string, heartbeat: (connection: Connection) => void) => ({
    path,
    kind: "test",
    open: () => (connection: Connection) => ({
      receive: (data: Buffer) => connection.outbox.send(data),
      heartbeat: () => heartbeat(connection),
      viewerChanged() {},
      onWritable() {},
      sendError() {},
      close() {},
      channels: () => [],
    }),
  });
  const viewer = {
    subject: "s",
    org: "o",
    scopes: new Set<string>(),
    claimsVersion: "0",
    jti: "j",
    kid: "k",
  };
  const sockets = openSockets(context, {
    verifier: { verify: async () => ({ ...viewer, expiresAt: clock.now() + 6_000_000 }) },
    revocations: memoryRevocations(clock),
    metrics: gatewayMetrics(context.telemetry.meter),
    origins: [],
    endpoints: [endpoint("/pinged", (connection) => connection.ping()), endpoint("/silent", () => {})],
    limits: {
      sockets: 10,
      socketsPerSubject: 10,
      socketsPerOrg: 10,
      frameBytes: 65_536,
      bufferBytes: 16_384,
      slowMs: 10_000,
      idleMs: IDLE_MS,
      heartbeatMs: 15_000,
    },
  });
  const http = createServer().on("upgrade", (request, stream, head) =>
    sockets.upgrade(request, stream, head),
  );
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const { port } = http.address() as AddressInfo;
  return {
    clock,
    async connect(path: string, options = {}) {
      const ws = new WebSocket(`ws://127.0.0.1:${port}${path}`, options);
      let closed: { code: number; reason: string } | undefined;
      ws.on("close", (code, reason) => {
        closed = { code, reason: String(reason) };
      });
      await once(ws, "open");
      return { ws, closed: () => closed };
    },
    async [Symbol.asyncDispose]() {
      await sockets.drain(0);
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

/** Resolves when everything that the client sent before has been read. */
async function roundTrip(ws: WebSocket): Promise<void> {
  const answered = once(ws, "message");
  ws.send("anything");
  await answered;
}

test("answers a ping with its payload", async () => {
  await using server = await openServer();
  const { ws } = await server.connect("/silent");
  const answered = once(ws, "pong");
  ws.ping("are you there");
  expect(String((await answered)[0])).toBe("are you there");
});

test("closes a socket with limit_exceeded after too many pings within a second", async () => {
  await using server = await openServer();
  const { ws, closed } = await server.connect("/silent");
  let pongs = 0;
  ws.on("pong", () => pongs++);
  for (let i = 0; i < 1_000; i++) ws.ping();
  expect(await until("the end", closed)).toEqual({ code: 4429, reason: "limit_exceeded" });
  expect(pongs).toBeLessThanOrEqual(50);
});

test("counts unsolicited pongs like pings", async () => {
  await using server = await openServer();
  const { ws, closed } = await server.connect("/silent");
  for (let i = 0; i < 1_000; i++) ws.pong();
  expect(await until("the end", closed)).toEqual({ code: 4429, reason: "limit_exceeded" });
});

test("keeps a client open that pings now and then", async () => {
  await using server = await openServer();
  const { ws, closed } = await server.connect("/silent");
  for (let second = 0; second < 40; second++) {
    for (let i = 0; i < 5; i++) ws.ping();
    await roundTrip(ws);
    server.clock.jump(1_000);
  }
  expect(closed()).toBeUndefined();
});

test("pongs do not keep a socket open that was not pinged", async () => {
  await using server = await openServer();
  const { ws, closed } = await server.connect("/silent");
  const { ws: talking, closed: other } = await server.connect("/silent");
  for (let t = 0; t < IDLE_MS + 10_000; t += 10_000) {
    ws.pong();
    ws.ping();
    await roundTrip(talking);
    server.clock.jump(10_000);
  }
  expect(await until("the end", closed)).toEqual({ code: 1001, reason: "idle_timeout" });
  expect(other()).toBeUndefined();
});

test("keeps a client open that only answers pings, and closes one that answers none", async () => {
  await using server = await openServer();
  const { ws, closed } = await server.connect("/pinged");
  const { closed: deafClosed } = await server.connect("/pinged", { autoPong: false });
  let pings = 0;
  ws.on("ping", () => pings++);
  for (let beats = 1; beats <= 8; beats++) {
    server.clock.jump(15_000);
    await until("a ping", () => pings === beats);
    // Behind the pong on the same line.
    const answered = once(ws, "pong");
    ws.ping();
    await answered;
  }
  expect(await until("the end", deafClosed)).toEqual({ code: 1001, reason: "idle_timeout" });
  expect(closed()).toBeUndefined();
});
