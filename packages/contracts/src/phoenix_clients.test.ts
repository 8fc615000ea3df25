import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { KhalaError } from "./errors.ts";
import * as phoenix from "./phoenix.ts";

interface ClientMessage {
  join_ref: string | null;
  ref: string | null;
  topic: string;
  event: string;
  payload: unknown;
}

/** The part of the npm client that we are checked against. */
interface Serializer {
  encode(message: ClientMessage, done: (frame: string | ArrayBuffer) => void): void;
  decode(frame: string | ArrayBuffer, done: (message: ClientMessage) => void): void;
}

async function serializerOf(name: string): Promise<Serializer> {
  const client: { Serializer: Serializer } = await import(/* @vite-ignore */ name);
  return client.Serializer;
}

function encode(serializer: Serializer, message: ClientMessage): string | ArrayBuffer {
  let result: string | ArrayBuffer | undefined;
  serializer.encode(message, (frame) => {
    result = frame;
  });
  return result!;
}

function decode(serializer: Serializer, frame: string | Uint8Array<ArrayBuffer>): ClientMessage {
  let result: ClientMessage | undefined;
  serializer.decode(typeof frame === "string" ? frame : frame.buffer, (message) => {
    result = message;
  });
  return result!;
}

const bytesOf = (frame: unknown) => new Uint8Array(frame as ArrayBuffer);

const clients = [
  { name: "phoenix-1.8.5", version: "1.8.5", unicode: false },
  { name: "phoenix-1.8.15", version: "1.8.15", unicode: true },
  { name: "phoenix", version: "1.8.16", unicode: true },
];

const ascii = fc.string();
// The clients' TextDecoder drops a byte order mark at the start of a field.
const unicode = fc
  .string({ unit: "binary" })
  .filter((text) => Buffer.byteLength(text) <= 255 && !text.startsWith("\ufeff"));
const status = fc.constantFrom<phoenix.ReplyStatus>("ok", "error");
const data = fc.uint8Array({ maxLength: 500 });
// A client never sends null or undefined as the payload of a push.
const json = fc.jsonValue().filter((value) => value !== null);
const refs = (field: fc.Arbitrary<string>) => fc.option(field.filter((text) => text !== ""));

describe.each(clients)("the npm client $version", ({ name, unicode: writesUtf8 }) => {
  const written = writesUtf8 ? unicode : ascii;

  test("writes text frames that decodeText reads and encodeText reproduces", async () => {
    const serializer = await serializerOf(name);
    fc.assert(
      fc.property(
        refs(unicode),
        refs(unicode),
        unicode,
        unicode,
        json,
        (joinRef, ref, topic, event, payload) => {
          const frame = encode(serializer, { join_ref: joinRef, ref, topic, event, payload });
          const message = { joinRef, ref, topic, event, payload };
          expect(phoenix.decodeText(String(frame))).toEqual(JSON.parse(JSON.stringify(message)));
          expect(phoenix.encodeText(message)).toBe(frame);
        },
      ),
    );
  });

  test("writes binary frames that decodeBinary reads and encodeClientBinary reproduces", async () => {
    const serializer = await serializerOf(name);
    const ref = written.filter((text) => text !== "");
    fc.assert(
      fc.property(ref, ref, written, written, data, (joinRef, ref, topic, event, payload) => {
        const message = { join_ref: joinRef, ref, topic, event, payload: payload.slice().buffer };
        const frame = bytesOf(encode(serializer, message));
        expect(phoenix.decodeBinary(frame)).toEqual({ joinRef, ref, topic, event, payload });
        expect(phoenix.encodeClientBinary({ joinRef, ref, topic, event, payload })).toEqual(frame);
      }),
    );
  });

  test("reads our text frames", async () => {
    const serializer = await serializerOf(name);
    const ref = refs(unicode);
    fc.assert(
      fc.property(ref, ref, unicode, unicode, status, json, (join_ref, ref, topic, event, status, value) => {
        const sent: unknown = JSON.parse(JSON.stringify(value));
        const text = JSON.stringify(value);
        expect(decode(serializer, phoenix.pushText(join_ref, topic, event, text))).toEqual({
          join_ref,
          ref: null,
          topic,
          event,
          payload: sent,
        });
        expect(decode(serializer, phoenix.replyText(join_ref, ref, topic, status, text))).toEqual({
          join_ref,
          ref,
          topic,
          event: "phx_reply",
          payload: { status, response: sent },
        });
      }),
    );
  });

  test("reads our binary frames", async () => {
    const serializer = await serializerOf(name);
    const ref = refs(unicode);
    fc.assert(
      fc.property(ref, ref, unicode, unicode, status, data, (joinRef, ref, topic, event, status, data) => {
        // An empty join_ref is how a binary frame says null; the client takes it for "any join".
        const join_ref = joinRef ?? "";
        const push = decode(serializer, phoenix.pushBinary(joinRef, topic, event, data));
        expect({ ...push, payload: bytesOf(push.payload) }).toEqual({
          join_ref,
          ref: null,
          topic,
          event,
          payload: data,
        });
        const broadcast = decode(serializer, phoenix.broadcastBinary(topic, event, data));
        expect({ ...broadcast, payload: bytesOf(broadcast.payload) }).toEqual({
          join_ref: null,
          ref: null,
          topic,
          event,
          payload: data,
        });
        const reply = decode(serializer, phoenix.replyBinary(joinRef, ref, topic, status, data));
        const payload = reply.payload as { status: string; response: unknown };
        expect({ ...reply, payload: { ...payload, response: bytesOf(payload.response) } }).toEqual({
          join_ref,
          ref: ref ?? "",
          topic,
          event: "phx_reply",
          payload: { status, response: data },
        });
      }),
    );
  });
});

test("refuses the Latin-1 that client 1.8.5 writes for a non-ASCII topic", async () => {
  const serializer = await serializerOf("phoenix-1.8.5");
  const message = { join_ref: "1", ref: "2", topic: "café", event: "e", payload: new ArrayBuffer(1) };
  const frame = bytesOf(encode(serializer, message));
  expect(() => phoenix.decodeBinary(frame)).toThrow(KhalaError);
  expect(() => phoenix.decodeBinary(frame)).toThrow("topic is not UTF-8");
});
