import { describe, expect, test } from "vitest";
import { resumeFrom, viewerEpoch } from "./cursor.ts";

const epoch = viewerEpoch("018f3c9e", "0123456789ab");
const bounds = { floor: 10n, head: 20n };
const from = (watermark: bigint, of = epoch) => resumeFrom({ epoch: of, watermark }, epoch, bounds);

describe("a cursor is resumed", () => {
  test("from the floor, where nothing is missing yet, to the head, where nothing is new", () => {
    for (const watermark of [10n, 15n, 20n]) expect(from(watermark)).toBe(watermark);
  });

  test("from the floor when it is 0 and has no epoch: all that is retained", () => {
    expect(from(0n, "")).toBe(10n);
  });
});

describe("a cursor is stale", () => {
  test("below the floor, also at 0 when it has an epoch", () => {
    expect([from(9n), from(0n), from(-1n)]).toEqual(["stale", "stale", "stale"]);
  });

  test("beyond the head", () => {
    expect(from(21n)).toBe("stale");
  });

  test("of another database, of other rights, or of neither", () => {
    expect(from(15n, viewerEpoch("018f3c9f", "0123456789ab"))).toBe("stale");
    expect(from(15n, viewerEpoch("018f3c9e", "ba9876543210"))).toBe("stale");
    expect(from(15n, "")).toBe("stale");
  });
});
