import fc from "fast-check";
import { expect, test } from "vitest";
import { HotTail } from "./topic_reader.ts";
import { type EncodedUpdate, encodeUpdate } from "./update_codec.ts";

function update(watermark: bigint, bytes: number): EncodedUpdate {
  const row = {
    watermark,
    docKey: `run:${watermark}`,
    docVersion: 1n,
    op: "upsert" as const,
    payload: "x".repeat(bytes),
    payloadHash: null,
    payloadBytes: bytes,
    org: "org",
    audience: null,
    hiddenFrom: null,
    trace: null,
    insertedAt: 0,
  };
  return encodeUpdate("topic", row, 1_000_000);
}

test("holds the newest rows within its bytes, and every position from its base on", () => {
  const sizes = fc.array(fc.array(fc.integer({ min: 0, max: 2_000 }), { maxLength: 50 }), { maxLength: 60 });
  fc.assert(
    fc.property(
      fc.bigInt({ min: 0n, max: 1_000n }),
      fc.integer({ min: 0, max: 20_000 }),
      sizes,
      (start, limit, appends) => {
        const tail = new HotTail(start, limit);
        const all: EncodedUpdate[] = [];
        for (const append of appends) {
          const rows = append.map((bytes, i) => update(start + BigInt(all.length + i) + 1n, bytes));
          all.push(...rows);
          tail.append(rows);
          expect(tail.head).toBe(start + BigInt(all.length));
          expect(tail.bytes).toBeLessThanOrEqual(limit);
          const kept = all.slice(Number(tail.base - start));
          expect([...tail.after(tail.base)]).toEqual(kept);
          expect(kept.reduce((sum, { heldBytes }) => sum + heldBytes, 0)).toBe(tail.bytes);
          // One more would not have fitted.
          const before = all.at(-kept.length - 1);
          if (before && kept.length < all.length)
            expect(tail.bytes + before.heldBytes).toBeGreaterThan(limit);
        }
      },
    ),
  );
});

test("counts the payload and both encodings", () => {
  const tail = new HotTail(0n, 1_000_000);
  const rows = [1n, 2n].map((watermark) => update(watermark, 5_000));
  tail.append(rows);
  const held = rows.map(({ row, json, proto }) => row.payload!.length + json.length + proto.length);
  expect(tail.bytes).toBeGreaterThanOrEqual(held[0]! + held[1]!);
});

test("reads on from a position in the middle, and nothing from the head", () => {
  const tail = new HotTail(10n, 1_000_000);
  tail.append([11n, 12n, 13n].map((watermark) => update(watermark, 1)));
  expect([...tail.after(12n)].map(({ row }) => row.watermark)).toEqual([13n]);
  expect([...tail.after(13n)]).toEqual([]);
});

test("releases evicted rows at once, for garbage collection", async () => {
  const tail = new HotTail(0n, 30_000);
  const forgotten = new WeakRef(update(1n, 9_000));
  tail.append([forgotten.deref()!]);
  tail.append([update(2n, 9_000)]);
  expect(tail.base).toBe(1n);
  const { setFlagsFromString } = await import("node:v8");
  const { runInNewContext } = await import("node:vm");
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  await new Promise(setImmediate);
  collect();
  expect(forgotten.deref()).toBeUndefined();
});
