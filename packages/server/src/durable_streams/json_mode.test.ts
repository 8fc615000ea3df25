import { KhalaError } from "@khala/contracts";
import { expect, test } from "vitest";
import { messageArray, messagesLength, storedMessages } from "./json_mode.ts";

const stored = (text: string) => storedMessages(Buffer.from(text)).toString();

test.each([
  ["one value is one message", ' {"a": 1}\n', '{"a": 1}'],
  ["an array is its elements", "[1, [2], null]", "1, [2], null"],
  ["an array in an array is one message", "[[1, 2]]", "[1, 2]"],
  ["a text that looks like an array is one message", '"[1]"', '"[1]"'],
  ["a byte order mark is left out", "\uFEFF1", "1"],
  ["an empty array is no message", " [ ] ", ""],
  ["numbers keep their digits", "[12345678901234567890, 1.10]", "12345678901234567890, 1.10"],
])("%s", (_promise, body, expected) => {
  expect(stored(body)).toBe(expected);
});

test("refuses invalid JSON and invalid UTF-8", () => {
  for (const body of ["", "{", "[1,]", "nope"]) expect(() => stored(body)).toThrow(KhalaError);
  expect(() => storedMessages(Buffer.from([0x22, 0xff, 0x22]))).toThrow("not UTF-8");
});

test("readers get an array, even without messages", () => {
  expect(messageArray(Buffer.from("1,2")).toString()).toBe("[1,2]");
  expect(messageArray(Buffer.alloc(0)).toString()).toBe("[]");
});

test("splits messages at top-level commas only", () => {
  const stored = Buffer.from('{"a":[1,2],"b":",}"},"x\\",y" ,3');
  const first = (count: bigint) => {
    const length = messagesLength(stored, count);
    return length === undefined ? undefined : stored.subarray(0, Number(length)).toString();
  };
  expect(first(1n)).toBe('{"a":[1,2],"b":",}"}');
  expect(first(2n)).toBe('{"a":[1,2],"b":",}"},"x\\",y" ');
  expect(first(3n)).toBe(stored.toString());
  expect(first(4n)).toBeUndefined();
  expect(messagesLength(Buffer.alloc(0), 1n)).toBeUndefined();
});
