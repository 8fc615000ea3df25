import { expect, test } from "vitest";
import { formatOffset, parseOffset } from "./offset.ts";

test("offsets sort as text in the order of streams and positions", () => {
  const offsets = [
    { stream: 1n, position: 0n },
    { stream: 1n, position: 9n },
    { stream: 1n, position: 10n },
    { stream: 2n, position: 3n },
    { stream: 10n, position: 0n },
  ];
  const texts = offsets.map(formatOffset);
  expect([...texts].sort()).toEqual(texts);
  expect(texts.map(parseOffset)).toEqual(offsets);
});

test("refuses text that is not an offset", () => {
  for (const text of [
    "",
    "-1",
    "now",
    "1_2",
    "0000000000000001-0000000000000002",
    " 0000000000000001_0000000000000002",
  ])
    expect(parseOffset(text), text).toBeUndefined();
});
