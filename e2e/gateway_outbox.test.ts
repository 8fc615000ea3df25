import { createServer } from "node:http";
import { type Duplex, duplexPair } from "node:stream";
import { expect, test } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { Outbox } from "../packages/server/src/gateway/outbox.ts";
import { stampedFrame, wireFrame } from "../packages/server/src/kit/wire_frame.ts";
import { Changes, until } from "./support/until.ts";

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

/** Takes bytes off the line until at least so many were read, and lets the writer notice. */
async function take(far: Duplex, bytes: number): Promise<void> {
  for (let read = 0; read < bytes; ) {
    const chunk: Buffer | null = far.read();
    read += chunk?.length ?? 0;
    await new Promise(setImmediate);
  }
}

test("a full socket refuses, and asks for more once it has drained to half", async () => {
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

test("a slow line that moves within a large message is not taken for a dead one", async () => {
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

test("a large message arrives whole, whatever is sent right after it", async () => {
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
  "a message of %i bytes with a stamp in it is the shared one with this socket's stamp",
  async (bytes) => {
    const { socket, far, outbox } = await lineWithOutbox();
    const shared = stampedFrame(Buffer.alloc(bytes, "x"), stamp.length, Buffer.from("end"), false);
    const before = Buffer.from(shared.bytes);
    outbox.offer(shared, stamp);
    outbox.send("xxxxxend");
    const chunks: Buffer[] = [];
    far.on("data", (chunk: Buffer) => chunks.push(chunk));
    const messages = await until("two messages", () => {
      const read = messagesOf(Buffer.concat(chunks));
      return read.length === 2 && read;
    });
    expect(messages).toEqual([`${"x".repeat(bytes)}<mine>end`, "xxxxxend"]);
    expect(shared.bytes.equals(before)).toBe(true);
    socket.terminate();
  },
);

test("an answer is never refused, but who does not read answers is not read until there is room", async () => {
  const { socket, far, outbox, rooms } = await lineWithOutbox();
  outbox.send("x".repeat(LIMIT * 2));
  expect([socket.isPaused, outbox.fullSince]).toEqual([true, 1_000]);
  outbox.send("still");
  await take(far, LIMIT * 2);
  await until("room", () => rooms() === 1);
  expect([socket.isPaused, outbox.fullSince]).toEqual([false, undefined]);
  socket.terminate();
});

test("what is offered to a socket that is closing is dropped without a word", async () => {
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
