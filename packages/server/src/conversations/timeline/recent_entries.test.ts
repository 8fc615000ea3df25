import fc from "fast-check";
import { expect, test } from "vitest";
import type { Entry } from "../log/log.ts";
import { RecentEntries } from "./recent_entries.ts";

test("holds the newest entries within its bytes, without a gap", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(3_000), { maxLength: 80 }), (sizes) => {
      const recent = new RecentEntries({ seq: 5n, time: 1 }, 10_000);
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

test("returns entries unchanged, however often they are read", () => {
  const data = fc.string({ unit: "grapheme", maxLength: 300 });
  const step = fc.record({ data, ms: fc.nat(5), ask: fc.boolean() });
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 60 }),
      fc.constantFrom(0, 300, 2_000, 100_000),
      (steps, limit) => {
        const recent = new RecentEntries({ seq: 0n, time: 1_700_000_000_000 }, limit);
        const added: Entry[] = [];
        let time = 1_700_000_000_000;
        // A position has the time of its own entry, or of the one that follows.
        const check = () => {
          const kept = added.findIndex(({ seq, time }) => recent.after({ seq: seq - 1n, time }));
          if (kept < 0) return expect(recent.after(added.at(-1) ?? { seq: 0n, time })).toEqual([]);
          expect(recent.after({ seq: BigInt(kept), time: added[kept]!.time })).toEqual(added.slice(kept));
          for (const [i, entry] of added.entries())
            if (i >= kept) expect(recent.after(entry)).toEqual(added.slice(i + 1));
        };
        for (const { data, ms, ask } of steps) {
          time += ms;
          added.push({ seq: BigInt(added.length + 1), time, data });
          recent.add(added.at(-1)!);
          if (ask) check();
        }
        check();
      },
    ),
  );
});

test("does not know a position whose entry was replaced", () => {
  const recent = new RecentEntries({ seq: 0n, time: 3 }, 10_000);
  const entry = { seq: 1n, time: 5, data: JSON.stringify({ event: {} }) };
  recent.add(entry);
  expect(recent.after({ seq: 1n, time: 5 })).toEqual([]);
  expect(recent.after({ seq: 1n, time: 6 })).toBeUndefined();
  expect(recent.after({ seq: 1n, time: 4 })).toBeUndefined();
  expect(recent.after({ seq: 0n, time: 3 })).toHaveLength(1);
  expect(recent.after({ seq: 0n, time: 2 })).toBeUndefined();
  expect(recent.after({ seq: 0n, time: 4 })).toBeUndefined();
  // A cursor from before the entry was appended.
  expect(recent.after({ seq: 0n, time: 5 })).toHaveLength(1);
});

test("tells a replaced entry by its time, and contradicts no unknown or next position", () => {
  const recent = new RecentEntries({ seq: 4n, time: 3 }, 10_000);
  const entry = { seq: 5n, time: 5, data: JSON.stringify({ event: {} }) };
  recent.add(entry);
  expect(recent.contradicts({ seq: 5n, time: 5 })).toBe(false);
  expect(recent.contradicts({ seq: 5n, time: 6 })).toBe(true);
  expect(recent.contradicts({ seq: 4n, time: 4 })).toBe(true);
  expect(recent.contradicts({ seq: 3n, time: 9 })).toBe(false);
  expect(recent.contradicts({ seq: 6n, time: 9 })).toBe(false);
});
