import { expect, test } from "vitest";
import { chunksOf } from "./message_parts.tsx";

const words = Array.from({ length: 5_000 }, (_, i) => `word${i}`);

test("the chunks of a text join to the text", () => {
  const text = words.join(" ");
  expect(chunksOf(text).join("")).toBe(text);
  expect(chunksOf("x".repeat(9_999)).join("")).toBe("x".repeat(9_999));
  expect(chunksOf("")).toEqual([""]);
});

test("keeps all chunks but the last while the text grows", () => {
  const before = chunksOf(words.slice(0, 3_000).join(" "));
  const after = chunksOf(words.slice(0, 3_001).join(" "));
  expect(after.slice(0, before.length - 1)).toEqual(before.slice(0, -1));
});
