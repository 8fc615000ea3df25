import { KhalaError } from "./errors.ts";

/** A Phoenix Channels V2 message. A Uint8Array as the payload makes it a binary frame. */
export interface Message {
  /** The ref of the join that the message belongs to. */
  readonly joinRef: string | null;
  /** Ties a reply to its push. */
  readonly ref: string | null;
  readonly topic: string;
  readonly event: string;
  readonly payload: unknown;
}

/** The subprotocol of Phoenix, and the prefix of the one that carries a token. */
export const PROTOCOL = "phoenix";
export const TOKEN_PROTOCOL = "base64url.bearer.phx.";

/** The subprotocols that carry a token, as Phoenix's `authToken` does: unlike a URL, they are not printed or logged. */
export function tokenProtocols(token: string): string[] {
  const bytes = encoder.encode(token);
  const base64 = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  // Not all of base64 is legal in the name of a subprotocol.
  const name = base64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return [PROTOCOL, TOKEN_PROTOCOL + name];
}

/** How a push was answered. */
export type ReplyStatus = "ok" | "error";

/** A binary frame as the client receives it. */
export type ServerBinary =
  | { kind: "push"; joinRef: string | null; topic: string; event: string; data: Uint8Array }
  | {
      kind: "reply";
      joinRef: string | null;
      ref: string | null;
      topic: string;
      status: ReplyStatus;
      data: Uint8Array;
    }
  | { kind: "broadcast"; topic: string; event: string; data: Uint8Array };

/** The kinds of binary frames: their first byte. */
const PUSH = 0;
const REPLY = 1;
const BROADCAST = 2;

/** The fields of each layout; a push has a ref on its way to the server only. */
const CLIENT_PUSH = ["join_ref", "ref", "topic", "event"];
const SERVER_PUSH = ["join_ref", "topic", "event"];
const SERVER_REPLY = ["join_ref", "ref", "topic", "status"];
const SERVER_BROADCAST = ["topic", "event"];

/** The length of a binary frame's field is one byte. */
const MAX_FIELD = 255;

const encoder = new TextEncoder();
// A byte order mark is a character like any other in a field, so that what is decoded is what was sent.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Reads a text frame of either side: `[join_ref, ref, topic, event, payload]`. */
export function decodeText(text: string): Message {
  let frame: unknown;
  try {
    frame = JSON.parse(text);
  } catch (cause) {
    throw new KhalaError("invalid_request", "The frame is not JSON.", {}, { cause });
  }
  if (!Array.isArray(frame) || frame.length !== 5) {
    throw new KhalaError(
      "invalid_request",
      "The frame is not [join_ref, ref, topic, event, payload]; connect with vsn=2.0.0.",
    );
  }
  const [joinRef, ref, topic, event, payload]: unknown[] = frame;
  return {
    joinRef: refOf(joinRef, "join_ref"),
    ref: refOf(ref, "ref"),
    topic: textOf(topic, "topic"),
    event: textOf(event, "event"),
    payload,
  };
}

/** Writes a text frame of either side. */
export function encodeText(message: Message): string {
  const { joinRef, ref, topic, event, payload } = message;
  if (payload instanceof Uint8Array) throw invalid("payload", "is bytes, which only a binary frame carries");
  const json: string | undefined = JSON.stringify(payload);
  if (json === undefined) throw invalid("payload", "has no JSON form");
  return frameText(joinRef, ref, topic, event, json);
}

/** Writes a reply around a response that is already JSON text. */
export function replyText(
  joinRef: string | null,
  ref: string | null,
  topic: string,
  status: ReplyStatus,
  responseJson: string,
): string {
  return frameText(joinRef, ref, topic, "phx_reply", `{"status":"${status}","response":${responseJson}}`);
}

/** Writes a push around a payload that is already JSON text; without a joinRef it is a broadcast. */
export function pushText(joinRef: string | null, topic: string, event: string, payloadJson: string): string {
  return frameText(joinRef, null, topic, event, payloadJson);
}

/** Reads a client's binary push. The payload is a view into `bytes`. */
export function decodeBinary(bytes: Uint8Array): Message {
  if (bytes[0] !== PUSH) throw wrongKind(bytes);
  const { fields, data } = readFields(bytes, CLIENT_PUSH);
  const [joinRef, ref, topic, event] = fields as [string, string, string, string];
  return { joinRef: joinRef || null, ref: ref || null, topic, event, payload: data };
}

/** Writes a client's binary push. */
export function encodeClientBinary(message: Message): Uint8Array<ArrayBuffer> {
  const { joinRef, ref, topic, event, payload } = message;
  if (!(payload instanceof Uint8Array))
    throw invalid("payload", "is not bytes, which a binary frame carries");
  return writeFields(PUSH, CLIENT_PUSH, [joinRef, ref, topic, event], payload);
}

/** Writes the server's binary push, which unlike the client's has no ref. */
export function pushBinary(
  joinRef: string | null,
  topic: string,
  event: string,
  data: Uint8Array,
): Uint8Array<ArrayBuffer> {
  return writeFields(PUSH, SERVER_PUSH, [joinRef, topic, event], data);
}

/** Writes a binary reply. */
export function replyBinary(
  joinRef: string | null,
  ref: string | null,
  topic: string,
  status: ReplyStatus,
  data: Uint8Array,
): Uint8Array<ArrayBuffer> {
  return writeFields(REPLY, SERVER_REPLY, [joinRef, ref, topic, status], data);
}

/** Writes a binary broadcast: a push for every channel of the topic. */
export function broadcastBinary(topic: string, event: string, data: Uint8Array): Uint8Array<ArrayBuffer> {
  return writeFields(BROADCAST, SERVER_BROADCAST, [topic, event], data);
}

/** Reads a binary frame as a client receives it. The data is a view into `bytes`. */
export function decodeServerBinary(bytes: Uint8Array): ServerBinary {
  switch (bytes[0]) {
    case PUSH: {
      const { fields, data } = readFields(bytes, SERVER_PUSH);
      const [joinRef, topic, event] = fields as [string, string, string];
      return { kind: "push", joinRef: joinRef || null, topic, event, data };
    }
    case REPLY: {
      const { fields, data } = readFields(bytes, SERVER_REPLY);
      const [joinRef, ref, topic, status] = fields as [string, string, string, string];
      if (status !== "ok" && status !== "error") throw invalid("status", 'is neither "ok" nor "error"');
      return { kind: "reply", joinRef: joinRef || null, ref: ref || null, topic, status, data };
    }
    case BROADCAST: {
      const { fields, data } = readFields(bytes, SERVER_BROADCAST);
      const [topic, event] = fields as [string, string];
      return { kind: "broadcast", topic, event, data };
    }
    default:
      throw wrongKind(bytes);
  }
}

function frameText(joinRef: string | null, ref: string | null, topic: string, event: string, json: string) {
  // JSON.stringify(null) is "null": both refs may be missing.
  return `[${JSON.stringify(joinRef)},${JSON.stringify(ref)},${JSON.stringify(topic)},${JSON.stringify(event)},${json}]`;
}

/** After the kind: the length of each field in one byte, the fields, and the data up to the end. */
function writeFields(
  kind: number,
  names: readonly string[],
  fields: readonly (string | null)[],
  data: Uint8Array,
): Uint8Array<ArrayBuffer> {
  const parts = fields.map((field, index) => utf8(field ?? "", names[index]!));
  let offset = 1 + parts.length;
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, offset) + data.length);
  bytes[0] = kind;
  for (let index = 0; index < parts.length; index++) {
    const part = parts[index]!;
    bytes[1 + index] = part.length;
    bytes.set(part, offset);
    offset += part.length;
  }
  bytes.set(data, offset);
  return bytes;
}

function readFields(bytes: Uint8Array, names: readonly string[]): { fields: string[]; data: Uint8Array } {
  let offset = 1 + names.length;
  const fields = names.map((name, index) => {
    const length = bytes[1 + index];
    if (length === undefined) throw invalid("frame", `ends before the length of ${name}`);
    if (offset + length > bytes.length) throw invalid("frame", `ends within ${name}`);
    const field = bytes.subarray(offset, offset + length);
    offset += length;
    try {
      return decoder.decode(field);
    } catch (cause) {
      throw invalid(name, "is not UTF-8", cause);
    }
  });
  // A plain view also where the bytes are a Node Buffer.
  const data = new Uint8Array(bytes.buffer, bytes.byteOffset + offset, bytes.length - offset);
  return { fields, data };
}

function utf8(text: string, name: string): Uint8Array {
  const plain = ascii(text);
  if (plain !== undefined) return plain;
  const bytes = encoder.encode(text);
  if (bytes.length > MAX_FIELD) {
    throw invalid(name, `is ${bytes.length} bytes long; a binary frame takes at most ${MAX_FIELD}`);
  }
  if (decoder.decode(bytes) !== text) throw invalid(name, "has a lone surrogate, which UTF-8 cannot carry");
  return bytes;
}

/** Nearly every field is short ASCII, for which a loop is many times faster than a TextEncoder. */
function ascii(text: string): Uint8Array | undefined {
  if (text.length > MAX_FIELD) return undefined;
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit > 127) return undefined;
    bytes[index] = unit;
  }
  return bytes;
}

function refOf(value: unknown, name: string): string | null {
  if (value === null || typeof value === "string") return value;
  throw invalid(name, "is neither a string nor null");
}

function textOf(value: unknown, name: string): string {
  if (typeof value === "string") return value;
  throw invalid(name, "is not a string");
}

function wrongKind(bytes: Uint8Array): KhalaError {
  return invalid("frame", bytes.length === 0 ? "is empty" : `has the unexpected kind ${bytes[0]}`);
}

function invalid(field: string, problem: string, cause?: unknown): KhalaError {
  return new KhalaError("invalid_request", `Phoenix frame: ${field} ${problem}.`, { field }, { cause });
}
