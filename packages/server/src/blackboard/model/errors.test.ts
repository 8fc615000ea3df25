import fc from "fast-check";
import { expect, test } from "vitest";
import { failureOf, makeFailure } from "./errors.ts";

test("an error is described by its class, message and stack", () => {
  const failure = failureOf(new RangeError("too far"), "retryable");
  expect(failure).toMatchObject({ class: "RangeError", message: "too far", kind: "retryable" });
  expect(failure.stack).toContain("errors.test.ts");
});

test("the causes of an error are in its message", () => {
  const error = new Error("fetch failed", { cause: new Error("connect", { cause: "ECONNREFUSED" }) });
  expect(failureOf(error, "retryable").message).toBe(
    "fetch failed; caused by: connect; caused by: ECONNREFUSED",
  );
});

test("an error that is its own cause ends", () => {
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
])("what is thrown need not be an error: %#", (thrown, kind, message) => {
  expect(failureOf(thrown, "retryable")).toEqual({ class: kind, message, kind: "retryable" });
});

test("a value that cannot even be read is a failure all the same", () => {
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
])("the credentials of addresses are masked: %s", (message, masked) => {
  const error = new Error(message);
  expect(failureOf(error, "retryable").message).toBe(masked);
  expect(failureOf(error, "retryable").stack).not.toContain("secret");
});

test("message and stack are cut by bytes, never within a character", () => {
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

test("a failure can be stored, whatever was thrown: bounded, Unicode, no control characters but lines and tabs", () => {
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
