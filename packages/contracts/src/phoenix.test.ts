import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { KhalaError } from "./errors.ts";
import * as phoenix from "./phoenix.ts";

function refusal(run: () => unknown): KhalaError {
  try {
    run();
  } catch (error) {
    if (error instanceof KhalaError) return error;
    throw error;
  }
  throw new Error("was not refused");
}

const utf8Length = (text: string) => Buffer.byteLength(text);
const field = fc
  .oneof(fc.string(), fc.string({ unit: "binary" }), fc.string({ maxLength: 255, size: "max" }))
  .filter((text) => utf8Length(text) <= 255);
const ref = fc.option(field.filter((text) => text !== ""));
const status = fc.constantFrom<phoenix.ReplyStatus>("ok", "error");
const data = fc.uint8Array({ maxLength: 2000 });

describe("round trips", () => {
  test("any text message decodes to the encoded one", () => {
    const message = fc.record({ joinRef: ref, ref, topic: field, event: field, payload: fc.jsonValue() });
    fc.assert(
      fc.property(message, (sent) => {
        const json: unknown = JSON.parse(JSON.stringify(sent));
        expect(phoenix.decodeText(phoenix.encodeText(sent))).toEqual(json);
      }),
    );
  });

  test("spliced JSON equals the output of JSON.stringify", () => {
    fc.assert(
      fc.property(
        ref,
        ref,
        field,
        field,
        status,
        fc.jsonValue(),
        (joinRef, ref, topic, event, status, payload) => {
          const json = JSON.stringify(payload);
          expect(phoenix.pushText(joinRef, topic, event, json)).toBe(
            JSON.stringify([joinRef, null, topic, event, payload]),
          );
          expect(phoenix.replyText(joinRef, ref, topic, status, json)).toBe(
            JSON.stringify([joinRef, ref, topic, "phx_reply", { status, response: payload }]),
          );
        },
      ),
    );
  });

  test("any binary message of a client decodes to the encoded one", () => {
    const message = fc.record({ joinRef: ref, ref, topic: field, event: field, payload: data });
    fc.assert(
      fc.property(message, (sent) => {
        expect(phoenix.decodeBinary(phoenix.encodeClientBinary(sent))).toEqual(sent);
      }),
    );
  });

  test("any binary message of the server decodes to the encoded one", () => {
    fc.assert(
      fc.property(ref, ref, field, field, status, data, (joinRef, ref, topic, event, status, data) => {
        const push = phoenix.pushBinary(joinRef, topic, event, data);
        expect(phoenix.decodeServerBinary(push)).toEqual({ kind: "push", joinRef, topic, event, data });
        const reply = phoenix.replyBinary(joinRef, ref, topic, status, data);
        expect(phoenix.decodeServerBinary(reply)).toEqual({
          kind: "reply",
          joinRef,
          ref,
          topic,
          status,
          data,
        });
        const broadcast = phoenix.broadcastBinary(topic, event, data);
        expect(phoenix.decodeServerBinary(broadcast)).toEqual({ kind: "broadcast", topic, event, data });
      }),
    );
  });

  test("keeps a byte order mark at the start of a field", () => {
    const sent = { joinRef: "1", ref: "2", topic: "\ufefft", event: "\ufeff", payload: new Uint8Array(0) };
    expect(phoenix.decodeBinary(phoenix.encodeClientBinary(sent))).toEqual(sent);
  });

  test("reads a frame within a larger buffer in its bounds, without a copy", () => {
    const frame = phoenix.encodeClientBinary({
      joinRef: "1",
      ref: "2",
      topic: "t",
      event: "e",
      payload: Uint8Array.of(7, 8),
    });
    const buffer = Buffer.concat([Buffer.alloc(3, 255), frame, Buffer.alloc(3, 255)]);
    const { payload } = phoenix.decodeBinary(buffer.subarray(3, 3 + frame.length));
    expect(payload).toEqual(Uint8Array.of(7, 8));
    expect(payload).toHaveProperty("buffer", buffer.buffer);
  });
});

describe("malformed frames", () => {
  const calm = (run: () => unknown) => {
    try {
      run();
    } catch (error) {
      expect(error).toBeInstanceOf(KhalaError);
      expect(error).toHaveProperty("code", "invalid_request");
    }
  };

  test("random bytes are decoded or refused, without another error", () => {
    const bytes = fc.tuple(fc.integer({ min: 0, max: 4 }), fc.uint8Array({ maxLength: 40 }));
    fc.assert(
      fc.property(bytes, ([kind, rest]) => {
        calm(() => phoenix.decodeBinary(Uint8Array.of(kind, ...rest)));
        calm(() => phoenix.decodeServerBinary(Uint8Array.of(kind, ...rest)));
      }),
      { numRuns: 500 },
    );
  });

  test("random text and JSON are decoded or refused, without another error", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json(),
          fc.array(fc.jsonValue()).map((v) => JSON.stringify(v)),
        ),
        (text) => {
          calm(() => phoenix.decodeText(text));
        },
      ),
    );
  });

  test("refuses a frame cut anywhere before its data", () => {
    const payload = new Uint8Array(0);
    const push = phoenix.encodeClientBinary({ joinRef: "12", ref: "34", topic: "tö", event: "e", payload });
    for (let length = 0; length < push.length; length++) {
      expect(refusal(() => phoenix.decodeBinary(push.subarray(0, length))).code).toBe("invalid_request");
    }
    const reply = phoenix.replyBinary("12", "34", "tö", "ok", payload);
    for (let length = 0; length < reply.length; length++) {
      expect(refusal(() => phoenix.decodeServerBinary(reply.subarray(0, length))).code).toBe(
        "invalid_request",
      );
    }
  });

  test.each([
    ["not JSON", "{", "JSON"],
    ["version 1.0.0", '{"topic":"t"}', "vsn=2.0.0"],
    ["a number as ref", '["1",2,"t","e",{}]', "ref"],
    ["a number as join_ref", '[1,"2","t","e",{}]', "join_ref"],
    ["no topic", '["1","2",null,"e",{}]', "topic"],
    ["no event", '["1","2","t",{},{}]', "event"],
  ])("%s: the message names the problem", (_, text, word) => {
    expect(refusal(() => phoenix.decodeText(text)).message).toContain(word);
  });
});

describe("refuses to encode", () => {
  const none = new Uint8Array(0);
  const long = "x".repeat(256);
  const wide = "é".repeat(128);

  test.each([
    ["topic", () => phoenix.pushBinary("1", long, "e", none)],
    ["topic", () => phoenix.pushBinary("1", wide, "e", none)],
    ["event", () => phoenix.broadcastBinary("t", long, none)],
    ["join_ref", () => phoenix.pushBinary(long, "t", "e", none)],
    ["ref", () => phoenix.replyBinary("1", wide, "t", "ok", none)],
  ])("a %s over 255 bytes of UTF-8 in a binary frame", (name, run) => {
    expect(refusal(run).details.field).toBe(name);
    expect(refusal(run).message).toContain("256 bytes");
  });

  test("a lone surrogate in a binary frame", () => {
    expect(refusal(() => phoenix.pushBinary("1", "\ud800", "e", none)).details.field).toBe("topic");
  });

  test("bytes in a text frame, JSON in a binary frame, nothing in either", () => {
    const message = { joinRef: "1", ref: "2", topic: "t", event: "e" };
    for (const run of [
      () => phoenix.encodeText({ ...message, payload: none }),
      () => phoenix.encodeText({ ...message, payload: undefined }),
      () => phoenix.encodeClientBinary({ ...message, payload: {} }),
    ]) {
      expect(refusal(run).details.field).toBe("payload");
    }
  });

  test("accepts over 255 bytes in a text frame", () => {
    const text = phoenix.pushText(long, long, wide, "{}");
    expect(phoenix.decodeText(text)).toMatchObject({ joinRef: long, topic: long, event: wide });
  });
});
