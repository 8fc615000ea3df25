import fc from "fast-check";
import { expect, test } from "vitest";
import { Recent } from "./recent.ts";

test("whatever is added, it holds the newest entries within its bytes, without a hole", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(3_000), { maxLength: 80 }), (sizes) => {
      const recent = new Recent({ seq: 5n, time: 1 }, 10_000);
      sizes.forEach((size, i) => {
        const entry = {
          seq: BigInt(6 + i),
          time: 1,
          data: JSON.stringify({ event: { status: { text: "x".repeat(size) } } }),
        };
        recent.add(entry);
      });
      const head = BigInt(5 + sizes.length);
      const after = (seq: bigint) => recent.after({ seq, time: 1 });
      expect(after(head)).toEqual([]);
      for (let seq = 5n; seq < head; seq++) {
        const items = after(seq);
        if (!items) continue;
        expect(items.map((entry) => entry.seq)).toEqual(
          Array.from({ length: Number(head - seq) }, (_, i) => seq + 1n + BigInt(i)),
        );
        expect(items.slice(1).reduce((sum, { data }) => sum + data.length, 0)).toBeLessThanOrEqual(10_000);
      }
    }),
  );
});

test("a position whose entry was replaced by a later one is not here", () => {
  const recent = new Recent({ seq: 0n, time: 3 }, 10_000);
  const entry = { seq: 1n, time: 5, data: JSON.stringify({ event: {} }) };
  recent.add(entry);
  expect(recent.after({ seq: 1n, time: 5 })).toEqual([]);
  expect(recent.after({ seq: 1n, time: 6 })).toEqual([]);
  expect(recent.after({ seq: 1n, time: 4 })).toBeUndefined();
  expect(recent.after({ seq: 0n, time: 3 })).toHaveLength(1);
  expect(recent.after({ seq: 0n, time: 2 })).toBeUndefined();
});

test("an entry whose number was another's is known by its time; what is not here, or comes next, contradicts nothing", () => {
  const recent = new Recent({ seq: 4n, time: 3 }, 10_000);
  const entry = { seq: 5n, time: 5, data: JSON.stringify({ event: {} }) };
  recent.add(entry);
  expect(recent.contradicts({ seq: 5n, time: 5 })).toBe(false);
  expect(recent.contradicts({ seq: 5n, time: 6 })).toBe(true);
  expect(recent.contradicts({ seq: 4n, time: 4 })).toBe(true);
  expect(recent.contradicts({ seq: 3n, time: 9 })).toBe(false);
  expect(recent.contradicts({ seq: 6n, time: 9 })).toBe(false);
});
