import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import { Changes, until } from "@khala/test-support/kit/until";
import { expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { Outbox } from "../../packages/server/src/gateway/sockets/outbox.ts";
import { stampedFrame, wireFrame } from "../../packages/server/src/kit/wire_frame.ts";

const LIMIT = 64 << 10;

/** A WebSocket over a line whose other end takes bytes only when the test reads them. */
async function lineWithOutbox() {
  const [near, far] = duplexPair();
  const http = createServer();
  const wss = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  const opened = new Promise<WebSocket>((resolve) => {
    http.on("upgrade", (request, stream, head) => wss.handleUpgrade(request, stream, head, resolve));
  });
  http.emit("connection", near);
  const key = Buffer.alloc(16, 1).toString("base64");
  far.write(
    `GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n\r\n`,
  );
  const socket = await opened;
  const room = new Changes();
  let rooms = 0;
  room.onChange(() => rooms++);
  let now = 1_000;
  const outbox = new Outbox(
    socket,
    near,
    LIMIT,
    () => now,
    () => room.changed(),
  );
  return { socket, far, outbox, rooms: () => rooms, at: (ms: number) => (now = ms) };
}

const frame = (bytes: number) => wireFrame(`${"x".repeat(bytes)}end`);
const stamp = Buffer.from("<mine>");

/** Reads at least this many bytes from the connection, and lets the writer notice. */
async function take(far: Duplex, bytes: number): Promise<void> {
  for (let read = 0; read < bytes; ) {
    const chunk: Buffer | null = far.read();
    read += chunk?.length ?? 0;
    await new Promise(setImmediate);
  }
}

test("a full outbox refuses frames, and is writable again once half is drained", async () => {
  const { socket, far, outbox, rooms } = await lineWithOutbox();
  expect(outbox.offer(frame(1_000))).toBe(true);
  expect(outbox.fullSince).toBeUndefined();
  // One frame over the limit is admitted when there is room at all.
  expect(outbox.offer(frame(300_000))).toBe(true);
  expect(outbox.waitingBytes).toBeGreaterThan(LIMIT);
  expect(outbox.offer(frame(1))).toBe(false);
  expect(outbox.fullSince).toBe(1_000);
  await take(far, 300_000);
  await until("room", () => rooms() === 1);
  expect(outbox.fullSince).toBeUndefined();
  expect(outbox.offer(frame(1))).toBe(true);
  socket.terminate();
});

test("does not close a slow connection that progresses within a large message", async () => {
  const { socket, far, outbox, at } = await lineWithOutbox();
  outbox.offer(frame(2 << 20));
  outbox.offer(frame(1));
  expect(outbox.fullSince).toBe(1_000);
  at(9_000);
  await take(far, 200_000);
  await until("a later time", () => outbox.fullSince === 9_000);
  at(30_000);
  await new Promise(setImmediate);
  expect(outbox.fullSince).toBe(9_000);
  socket.terminate();
});

test("delivers a large message whole, even if others follow at once", async () => {
  const { socket, far, outbox } = await lineWithOutbox();
  outbox.offer(frame(200_000));
  outbox.send("an answer");
  const chunks: Buffer[] = [];
  far.on("data", (chunk: Buffer) => chunks.push(chunk));
  const messages = await until("two messages", () => {
    const read = messagesOf(Buffer.concat(chunks));
    return read.length === 2 && read;
  });
  expect(messages.map((text) => text.length)).toEqual([200_003, 9]);
  expect(messages[0]).toMatch(/^x+end$/);
  socket.terminate();
});

test.each([10, 500, 1_000, 3_000, 65_530, 70_000, 200_000])(
  "a message of %i bytes is the shared one with this socket's stamp",
  async (bytes) => {
    const { socket, far, outbox } = await lineWithOutbox();
    const shared = stampedFrame(Buffer.alloc(bytes, "x"), stamp.length, Buffer.from("end"), false);
    outbox.offer(shared, stamp);
    outbox.send("xxxxxend");
    const chunks: Buffer[] = [];
    far.on("data", (chunk: Buffer) => chunks.push(chunk));
    const messages = await until("two messages", () => {
      const read = messagesOf(Buffer.concat(chunks));
      return read.length === 2 && read;
    });
    expect(messages).toEqual([`${"x".repeat(bytes)}<mine>end`, "xxxxxend"]);
    socket.terminate();
  },
);

test.each([10, 3_000, 70_000])(
  "sockets that do not read yet each keep their own stamp in a shared message of %i bytes",
  async (bytes) => {
    const lines = await Promise.all(Array.from({ length: 40 }, lineWithOutbox));
    const shared = stampedFrame(Buffer.alloc(bytes, "x"), 2, Buffer.from("end"), false);
    const stamps = lines.map((_, n) => String(10 + n));
    for (const [n, { outbox }] of lines.entries()) outbox.offer(shared, Buffer.from(stamps[n]!));
    for (const [n, { socket, far }] of lines.entries()) {
      const chunks: Buffer[] = [];
      far.on("data", (chunk: Buffer) => chunks.push(chunk));
      const [message] = await until("a message", () => {
        const read = messagesOf(Buffer.concat(chunks));
        return read.length === 1 && read;
      });
      expect(message).toBe(`${"x".repeat(bytes)}${stamps[n]}end`);
      socket.terminate();
    }
  },
);

test("concurrent sockets each get their own stamp in a shared message, also when their buffers are full", async () => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const outboxes: Outbox[] = [];
  server.on("connection", (socket, { socket: stream }) => {
    const room = () => {};
    outboxes.push(new Outbox(socket, stream, 64 << 20, () => 0, room));
  });
  const got: string[][] = [];
  const clients: WebSocket[] = [];
  for (let n = 0; n < 8; n++) {
    const client = new WebSocket(`ws://127.0.0.1:${port}`);
    const messages: string[] = [];
    client.on("message", (data: Buffer) => messages.push(data.toString()));
    await once(client, "open");
    // Every other one reads nothing until the end, so that its line fills up while the others' are idle.
    if (n % 2 === 1) client.pause();
    clients.push(client);
    got.push(messages);
  }
  const sizes = [20, 3_000, 40_000, 150_000];
  const rounds = 100;
  for (let round = 0; round < rounds; round++) {
    const shared = stampedFrame(Buffer.alloc(sizes[round % 4]!, "x"), 6, Buffer.from("end"), false);
    for (const [n, outbox] of outboxes.entries()) outbox.offer(shared, stampOf(round, n));
    await until("those who read have it", () => got.every(({ length }, n) => n % 2 === 1 || length > round));
  }
  expect(outboxes.map(({ waitingBytes }) => waitingBytes > 0)).toEqual(outboxes.map((_, n) => n % 2 === 1));
  for (const client of clients) client.resume();
  await until("every socket has every message", () => got.every(({ length }) => length === rounds));
  for (const [n, messages] of got.entries())
    expect(messages.map((text) => text.slice(-9))).toEqual(
      messages.map((_, round) => `${stampOf(round, n)}end`),
    );
  for (const client of clients) client.terminate();
  server.close();
});

const stampOf = (round: number, n: number) => Buffer.from(`${String(round).padStart(4, "0")}.${n}`);

test("always accepts a reply, but pauses a client that does not read until the outbox drains", async () => {
  const { socket, far, outbox, rooms } = await lineWithOutbox();
  outbox.send("x".repeat(LIMIT * 2));
  expect([socket.isPaused, outbox.fullSince]).toEqual([true, 1_000]);
  outbox.send("still");
  await take(far, LIMIT * 2);
  await until("room", () => rooms() === 1);
  expect([socket.isPaused, outbox.fullSince]).toEqual([false, undefined]);
  socket.terminate();
});

test("pong replies fill the outbox like others, and pause a client that does not read", async () => {
  const { socket, far, outbox, rooms } = await lineWithOutbox();
  for (let i = 0; !socket.isPaused; i++) {
    expect(i).toBeLessThan(LIMIT);
    outbox.pong(Buffer.alloc(125));
  }
  expect(outbox.fullSince).toBe(1_000);
  expect(outbox.waitingBytes).toBeLessThan(LIMIT + 200);
  await take(far, LIMIT);
  await until("room", () => rooms() === 1);
  expect([socket.isPaused, outbox.fullSince]).toEqual([false, undefined]);
  socket.terminate();
});

test("drops a frame for a closing socket", async () => {
  const { socket, outbox } = await lineWithOutbox();
  socket.close(1012);
  expect(outbox.offer(frame(10))).toBe(true);
  outbox.send("late");
  socket.terminate();
});

/** The text messages in what a server sent after its handshake; a message that is not whole yet is left out. */
function messagesOf(bytes: Buffer): string[] {
  let at = bytes.indexOf("\r\n\r\n") + 4;
  const messages: string[] = [];
  let text = "";
  while (at + 2 <= bytes.length) {
    const last = (bytes[at]! & 0x80) !== 0;
    const short = bytes[at + 1]! & 0x7f;
    const head = short === 126 ? 4 : short === 127 ? 10 : 2;
    if (at + head > bytes.length) break;
    const length =
      short === 126
        ? bytes.readUInt16BE(at + 2)
        : short === 127
          ? Number(bytes.readBigUInt64BE(at + 2))
          : short;
    if (at + head + length > bytes.length) break;
    text += bytes.toString("utf8", at + head, at + head + length);
    at += head + length;
    if (!last) continue;
    messages.push(text);
    text = "";
  }
  return messages;
}
