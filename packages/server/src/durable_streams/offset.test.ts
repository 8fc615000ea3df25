import { expect, test } from "vitest";
import { formatOffset, parseOffset } from "./offset.ts";

test("offsets sort as text in the order of streams and positions", () => {
  const offsets = [
    { stream: 1n, position: 0n, writtenAt: 0n },
    { stream: 1n, position: 9n, writtenAt: 7n },
    { stream: 1n, position: 10n, writtenAt: 6n },
    { stream: 2n, position: 3n, writtenAt: 1_795_000_000_000_000n },
    { stream: 10n, position: 0n, writtenAt: 0n },
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
    "1_2_3",
    "0000000000000001-0000000000000002-0000000000000003",
    " 0000000000000001_0000000000000002_0000000000000003",
  ])
    expect(parseOffset(text), text).toBeUndefined();
});
