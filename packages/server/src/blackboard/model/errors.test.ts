import fc from "fast-check";
import { expect, test } from "vitest";
import { failureOf, makeFailure } from "./errors.ts";

test("describes an error by its class, message and stack", () => {
  const failure = failureOf(new RangeError("too far"), "retryable");
  expect(failure).toMatchObject({ class: "RangeError", message: "too far", kind: "retryable" });
  expect(failure.stack).toContain("errors.test.ts");
});

test("adds the causes of an error to its message", () => {
  const error = new Error("fetch failed", { cause: new Error("connect", { cause: "ECONNREFUSED" }) });
  expect(failureOf(error, "retryable").message).toBe(
    "fetch failed; caused by: connect; caused by: ECONNREFUSED",
  );
});

test("follows a cyclic cause only a few times", () => {
  const error = new Error("again");
  error.cause = error;
  expect(failureOf(error, "fatal").message).toBe(Array(4).fill("again").join("; caused by: "));
});

test.each([
  ["a text", "string", "a text"],
  [undefined, "undefined", "undefined"],
  [null, "object", "null"],
  [{ code: 7 }, "object", '{"code":7}'],
  [7n, "bigint", "7"],
])("accepts a thrown value that is not an error: %#", (thrown, kind, message) => {
  expect(failureOf(thrown, "retryable")).toEqual({ class: kind, message, kind: "retryable" });
});

test("reports a thrown value that cannot be read", () => {
  const hostile = new Error("x");
  Object.defineProperty(hostile, "message", {
    get() {
      throw new Error("no");
    },
  });
  expect(failureOf(hostile, "fatal")).toEqual({
    class: "Error",
    message: "The thrown value could not be read.",
    kind: "fatal",
  });
});

test.each([
  ["connect postgres://me:secret@db:5432/x failed", "connect postgres://***@db:5432/x failed"],
  ["amqp://u:p@ss@host and https://token@api.example/a@b", "amqp://***@host and https://***@api.example/a@b"],
  ["mail me@example.com, see https://example.com/a@b", "mail me@example.com, see https://example.com/a@b"],
])("masks the credentials of URLs: %s", (message, masked) => {
  const error = new Error(message);
  expect(failureOf(error, "retryable").message).toBe(masked);
  expect(failureOf(error, "retryable").stack).not.toContain("secret");
});

test("cuts message and stack by bytes, never within a character", () => {
  const failure = makeFailure("fatal", {
    class: "E",
    message: "日".repeat(5_000),
    stack: "🚀".repeat(5_000),
  });
  expect(Buffer.byteLength(failure.message)).toBeLessThanOrEqual(2_048);
  expect(Buffer.byteLength(failure.stack!)).toBeLessThanOrEqual(8_192);
  expect(failure.message).toMatch(/^日+…$/);
  expect(failure.stack).toMatch(/^(🚀)+…$/u);
});

test("a failure can always be stored: bounded, Unicode, no control characters except lines and tabs", () => {
  fc.assert(
    fc.property(fc.anything(), fc.string({ unit: "binary", maxLength: 5_000 }), (thrown, message) => {
      for (const failure of [failureOf(thrown, "fatal"), failureOf(new Error(message), "fatal")]) {
        for (const text of [failure.class, failure.message, failure.stack ?? ""]) {
          expect(text.isWellFormed()).toBe(true);
          expect(text).not.toMatch(/[^\P{Cc}\n\t]/u);
        }
        expect(Buffer.byteLength(failure.message)).toBeLessThanOrEqual(2_048);
        expect(Buffer.byteLength(failure.stack ?? "")).toBeLessThanOrEqual(8_192);
      }
    }),
  );
});
