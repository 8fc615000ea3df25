import { createConnection } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { phoenix } from "@khala/contracts";
import { RawClient, until } from "@khala/test-support/clients/clients";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { settings: { KHALA_MAX_FRAME_BYTES: "4096" } });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const connect = async () => RawClient.connect(server.socketUrl, { token: await server.token() });

/** A socket that was there before, and must not notice what another one does. */
async function stillServing(): Promise<void> {
  await using bystander = await connect();
  expect(await bystander.join()).toEqual({ status: "ok", response: {} });
}

describe("an unreadable frame closes its socket with invalid_request, and no other", () => {
  test.each([
    ["text that is not JSON", "{"],
    ["JSON that is no array", '{"topic":"sync:v1"}'],
    ["an array of four", '["1","1","sync:v1","phx_join"]'],
    ["a frame of version 1", '{"topic":"sync:v1","event":"phx_join","payload":{},"ref":"1"}'],
    ["a ref that is a number", '["1",1,"sync:v1","phx_join",{}]'],
    ["a topic that is null", '["1","1",null,"phx_join",{}]'],
    ["no bytes at all", new Uint8Array(0)],
    ["bytes of an unknown kind", Uint8Array.of(9, 0, 0, 0, 0)],
    ["bytes that end within a field", Uint8Array.of(0, 1, 1, 200, 1, 65)],
    ["a topic that is not UTF-8", Uint8Array.of(0, 0, 0, 1, 0, 0xff)],
  ])("%s", async (_, frame) => {
    await using raw = await connect();
    raw.send(frame);
    expect(await raw.ended()).toEqual({ code: 4400, reason: "invalid_request" });
    await stillServing();
  });

  test.each([
    ["a ref that is too long for a binary reply", "x".repeat(300)],
    ["a ref that UTF-8 cannot carry", "\ud800"],
  ])("%s", async (_, ref) => {
    await using raw = await connect();
    await raw.join({ encoding: "proto" });
    raw.send(phoenix.encodeText({ joinRef: "1", ref, topic: "sync:v1", event: "heartbeat", payload: {} }));
    expect(await raw.ended()).toEqual({ code: 4400, reason: "invalid_request" });
    await stillServing();
  });
});

describe("a client that violates the WebSocket protocol is disconnected", () => {
  test("with 1009 when its frame is over the limit", async () => {
    await using raw = await connect();
    raw.send(JSON.stringify([null, "1", "phoenix", "heartbeat", { pad: "x".repeat(4_096) }]));
    expect(await raw.ended()).toMatchObject({ code: 1009 });
    await stillServing();
  });

  test("with 1009 when its fragments are over the limit together", async () => {
    await using raw = await connect();
    for (let i = 0; i < 5; i++) raw.ws.send("x".repeat(1_000), { fin: false });
    expect(await raw.ended()).toMatchObject({ code: 1009 });
  });

  test("with 1007 when its text is not UTF-8", async () => {
    await using raw = await connect();
    raw.ws.send(Buffer.from([0xff, 0xfe]), { binary: false });
    expect(await raw.ended()).toMatchObject({ code: 1007 });
    await stillServing();
  });

  test("with 1002 when its frames are not masked", async () => {
    await using raw = await connect();
    raw.ws.send("[]", { mask: false });
    expect(await raw.ended()).toMatchObject({ code: 1002 });
    await stillServing();
  });

  test("when its connection breaks in the middle of a frame", async () => {
    const token = await server.token();
    const cut = createConnection(Number(new URL(server.url).port), "127.0.0.1");
    cut.on("error", () => {});
    cut.write(upgrade(`/socket/websocket?vsn=2.0.0&token=${token}`));
    await new Promise((resolve) => cut.once("data", resolve));
    cut.write(Uint8Array.of(0x81, 0xfe));
    cut.resetAndDestroy();
    await stillServing();
  });
});

test("answers a payload that is not a message with an error, and keeps the socket open", async () => {
  await using raw = await connect();
  await raw.join();
  const nested = `${"[".repeat(1_500)}${"]".repeat(1_500)}`;
  const payloads: unknown[] = [
    null,
    1,
    "text",
    [],
    { topics: "all" },
    { topics: [1] },
    { topics: [RUNS], resume_after: [] },
  ];
  payloads.push(
    { topics: JSON.parse(nested) },
    { nonsense: 1 },
    { topics: [RUNS], resume_after: { [RUNS]: { watermark: "x" } } },
  );
  for (const payload of payloads) {
    const { status, response } = await raw.push("sync:v1", "subscribe", payload);
    expect({ status, response }).toMatchObject({
      status: "error",
      response: { error: { code: "invalid_request" } },
    });
  }
  const bytes = await raw.push("sync:v1", "subscribe", Uint8Array.of(0xff, 0xff, 0xff));
  expect(bytes).toMatchObject({ status: "error", response: { error: { code: "invalid_request" } } });
});

test("answers random input or closes the socket, and the server continues", async () => {
  const frame = fc.oneof(
    fc.string({ maxLength: 200, unit: "binary" }),
    fc.uint8Array({ maxLength: 200 }),
    fc.json({ maxDepth: 3 }),
    fc
      .tuple(
        fc.constantFrom("1", null, ""),
        fc.string(),
        fc.constantFrom("sync:v1", "phoenix", "x"),
        fc.constantFrom(
          "phx_join",
          "phx_leave",
          "subscribe",
          "unsubscribe",
          "auth",
          "heartbeat",
          "phx_reply",
        ),
        fc.jsonValue(),
      )
      .map((parts) => JSON.stringify(parts)),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(frame, { minLength: 1, maxLength: 8 }), async (frames) => {
      await using raw = await connect();
      for (const each of frames) raw.send(each);
      raw.send('[null,"last","phoenix","heartbeat",{}]');
      await until("an answer or an end", () => raw.closed ?? raw.received.find(({ ref }) => ref === "last"), {
        on: raw,
      });
    }),
    { numRuns: 150 },
  );
  await stillServing();
});

function upgrade(path: string, extra = ""): string {
  const key = Buffer.alloc(16, 1).toString("base64");
  return `GET ${path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n${extra}\r\n`;
}

/** Sends raw HTTP and returns all that comes back until the server closes. */
async function exchange(request: string): Promise<string> {
  const socket = createConnection(Number(new URL(server.url).port), "127.0.0.1");
  socket.write(request);
  return Promise.race([
    text(socket),
    delay(5_000, "the server did not close the connection", { ref: false }),
  ]);
}

describe("an invalid handshake is answered and closed", () => {
  test("at a path without a socket", async () => {
    const answer = await exchange(upgrade("/elsewhere"));
    expect(answer).toMatch(/^HTTP\/1.1 404 /);
    expect(answer).toContain('"code":"not_found"');
  });

  test.each(["//", "http://[", "/socket/websocket?%", "/%zz"])("at the path %s", async (path) => {
    expect(await exchange(upgrade(path))).toMatch(/^HTTP\/1.1 4\d\d /);
    await stillServing();
  });

  test("by a client that disconnects at once", async () => {
    for (const path of ["/elsewhere", "/socket/websocket?vsn=2.0.0"]) {
      const socket = createConnection(Number(new URL(server.url).port), "127.0.0.1");
      socket.on("error", () => {});
      await new Promise<void>((resolve) => socket.write(upgrade(path), () => resolve()));
      socket.resetAndDestroy();
    }
    await stillServing();
  });
});
