import { describe, expect, test } from "vitest";
import { resumeFrom, startOf, viewerEpoch } from "./cursor.ts";
import { Starts } from "./starts.ts";

const rights = "0123456789ab";
const epoch = viewerEpoch("018f3c9e", rights);
const earlier = viewerEpoch("018f3c9d", rights);
const earliest = viewerEpoch("018f3c9c", rights);
const starts = new Starts([
  { id: "018f3c9c", postgres: "1", heads: {} },
  { id: "018f3c9d", postgres: "1", heads: {} },
  { id: "018f3c9e", postgres: "2", heads: { docs: "15" } },
]);
const place = { topic: "docs", rights, starts, bounds: { floor: 10n, partsFloor: 10n, head: 20n } };
const from = (watermark: bigint, of = epoch) => resumeFrom({ epoch: of, watermark }, place);

describe("a cursor is resumed", () => {
  test("from the floor, where nothing is missing, to the head, where nothing is new", () => {
    for (const watermark of [10n, 15n, 20n]) expect(from(watermark)).toBe(watermark);
  });

  test("of an earlier start, up to the beginning of the next one on another PostgreSQL", () => {
    for (const epoch of [earlier, earliest])
      for (const watermark of [10n, 15n]) expect(from(watermark, epoch)).toBe(watermark);
  });

  test("from the floor when it is 0 without an epoch: everything retained", () => {
    expect(from(0n, "")).toBe(10n);
  });
});

describe("a cursor is stale", () => {
  test("below the floor, also at 0 with an epoch", () => {
    expect([from(9n), from(0n), from(-1n)]).toEqual(["stale", "stale", "stale"]);
  });

  test("beyond the head", () => {
    expect(from(21n)).toBe("stale");
  });

  test("of an earlier start, beyond the beginning of the next one: a restore undid it", () => {
    for (const epoch of [earlier, earliest]) expect(from(16n, epoch)).toBe("stale");
  });

  test("in a topic that was missing at the next start", () => {
    expect(resumeFrom({ epoch: earlier, watermark: 15n }, { ...place, topic: "other" })).toBe("stale");
  });

  test("of another database, of other rights, or of neither", () => {
    expect(from(15n, viewerEpoch("018f3c9f", "0123456789ab"))).toBe("stale");
    expect(from(15n, viewerEpoch("018f3c9e", "ba9876543210"))).toBe("stale");
    for (const odd of ["", "018f3c9e", "."]) expect(from(15n, odd)).toBe("stale");
    expect([startOf(epoch), startOf("018f3c9e"), startOf("")]).toEqual(["018f3c9e", "", ""]);
  });
});
