import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import * as phoenix from "./phoenix.ts";

interface Fields {
  join_ref: string | null;
  ref: string | null;
  topic: string;
  event: string;
  status: phoenix.ReplyStatus;
  payload: unknown;
  payload_hex: string;
}

interface Vector {
  name: string;
  from: "client" | "server";
  text?: string;
  hex?: string;
  kind?: "push" | "reply" | "broadcast";
  message?: Fields;
  decode_only?: true;
  error?: true;
}

const file = new URL("../../../proto/vectors/phoenix_frames.json", import.meta.url);
const vectors: { cases: Vector[] } = JSON.parse(readFileSync(file, "utf8"));

const unhex = (hex: string) => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");

function decode({ from, text, hex }: Vector) {
  if (text !== undefined) return phoenix.decodeText(text);
  const bytes = unhex(hex ?? "");
  return from === "client" ? phoenix.decodeBinary(bytes) : phoenix.decodeServerBinary(bytes);
}

function encodeBinary({ from, kind }: Vector, m: Fields): Uint8Array {
  const data = unhex(m.payload_hex);
  if (from === "client") {
    const { join_ref: joinRef, ref, topic, event } = m;
    return phoenix.encodeClientBinary({ joinRef, ref, topic, event, payload: data });
  }
  if (kind === "push") return phoenix.pushBinary(m.join_ref, m.topic, m.event, data);
  if (kind === "reply") return phoenix.replyBinary(m.join_ref, m.ref, m.topic, m.status, data);
  return phoenix.broadcastBinary(m.topic, m.event, data);
}

describe("the shared vectors", () => {
  const cases = vectors.cases.map((vector) => ({ ...vector, title: `${vector.from}: ${vector.name}` }));

  test.each(cases.filter((vector) => vector.error))("$title is refused", (vector) => {
    expect(() => decode(vector)).toThrow(expect.objectContaining({ code: "invalid_request" }));
  });

  test.each(cases.filter((vector) => vector.message && vector.text !== undefined))("$title", (vector) => {
    const { join_ref: joinRef, ref, topic, event, payload } = vector.message!;
    const message = { joinRef, ref, topic, event, payload };
    expect(decode(vector)).toEqual(message);
    if (!vector.decode_only) expect(phoenix.encodeText(message)).toBe(vector.text);
  });

  test.each(cases.filter((vector) => vector.message && vector.hex !== undefined))("$title", (vector) => {
    const { join_ref, payload_hex, ...rest } = vector.message!;
    const message = { ...rest, ...(join_ref === undefined ? {} : { joinRef: join_ref }) };
    const data = unhex(payload_hex);
    const expected =
      vector.from === "client" ? { ...message, payload: data } : { kind: vector.kind, ...message, data };
    expect(decode(vector)).toEqual(expected);
    expect(hex(encodeBinary(vector, vector.message!))).toBe(vector.hex);
  });
});
