import fc from "fast-check";
import { expect, test } from "vitest";
import type { Item } from "./plane_port.ts";
import { SLICE_ITEMS, SortedItems, sortInSlices, WorkSlices } from "./sorted_items.ts";

const item = (key: string, version = "1"): Item => ({ key, version, data: {} });

test("stays sorted and complete through any sets and removals", () => {
  const change = fc.record({ key: fc.string({ maxLength: 3 }), gone: fc.boolean() });
  const round = fc.record({ changes: fc.array(change, { maxLength: 30 }), replaces: fc.boolean() });
  fc.assert(
    fc.property(fc.array(round, { maxLength: 8 }), (rounds) => {
      const sorted = new SortedItems();
      const expected = new Map<string, Item>();
      for (const { changes, replaces } of rounds) {
        if (replaces) {
          const kept = [...expected.values()].filter((_, i) => i % 2 === 0);
          expected.clear();
          for (const one of kept) expected.set(one.key, one);
          sorted.replace(kept.sort((a, b) => (a.key < b.key ? -1 : 1)));
        }
        for (const { key, gone } of changes) {
          const made = gone ? undefined : item(key);
          sorted.set(key, made);
          if (made) expected.set(key, made);
          else expected.delete(key);
        }
        const shown = sorted.all();
        expect(shown.map(({ key }) => key)).toEqual([...expected.keys()].sort());
        for (const one of shown) expect(expected.get(one.key)).toBe(one);
        expect(sorted.all()).toBe(shown);
      }
    }),
  );
});

test("an array returned before does not change later", () => {
  const sorted = new SortedItems();
  for (let i = 0; i < 100; i++) sorted.set(`k${i}`, item(`k${i}`));
  const before = sorted.all();
  const copy = [...before];
  sorted.set("k50", item("k50", "2"));
  sorted.set("k7", undefined);
  expect(sorted.all()).toHaveLength(99);
  expect(before).toEqual(copy);
});

test("sorts many items in slices, and keeps a sorted array", async () => {
  let gaveWay = 0;
  const yieldControl = async () => {
    gaveWay++;
  };
  const turns = () => new WorkSlices({ yieldControl, timer: () => () => {} });
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: 3 * SLICE_ITEMS }),
      fc.integer({ min: 1 }),
      async (length, step) => {
        // Numbers in an order that depends only on the step.
        const items = Array.from({ length }, (_, i) => item(String((i * step) % 1_000_003).padStart(7, "0")));
        const expected = items.map(({ key }) => key).sort();
        gaveWay = 0;
        const sorted = await sortInSlices(items, turns());
        expect(sorted.map(({ key }) => key)).toEqual(expected);
        expect(gaveWay).toBeGreaterThanOrEqual(Math.floor((length - 1) / SLICE_ITEMS));
        expect(await sortInSlices(sorted, turns())).toBe(sorted);
      },
    ),
    { numRuns: 8 },
  );
});
