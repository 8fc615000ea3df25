import fc from "fast-check";
import { expect, test } from "vitest";
import { settled } from "../connection/test_support.ts";
import { memory } from "../storage/memory.ts";
import { SLICE_ITEMS } from "./sorted_items.ts";
import { at, stored, testPlane, update } from "./test_support.ts";
import { COMMIT_PATIENCE_MS } from "./topic_store.ts";

const key = (n: number) => `k${String(n).padStart(6, "0")}`;
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

/** A plane that continues after a yield when its test lets it. */
async function testSlices(options: Parameters<typeof testPlane>[0] = {}) {
  const hand = testPlane(options);
  const waiting: (() => void)[] = [];
  Object.assign(hand.place, { yieldControl: () => new Promise<void>((resolve) => waiting.push(resolve)) });
  hand.plane.subscribe("t", () => {});
  await settled();
  /** Runs until the next yield; false when it is done. */
  const turn = async () => {
    const next = waiting.shift();
    next?.();
    await settled();
    return next !== undefined;
  };
  const replace = async (
    ...[documents, cursor]: Parameters<ReturnType<typeof hand.source.sink>["replace"]>
  ) => {
    const replaced = hand.source.sink().replace(documents, cursor);
    await settled();
    while (await turn());
    await replaced;
  };
  const shown = () => hand.plane.list("t").items.map((item) => `${item.key}@${item.version}`);
  return { ...hand, turn, replace, shown };
}

test("a large replace yields to the event loop, and is visible only after its last slice", async () => {
  const { plane, source, turn, replace, shown } = await testSlices();
  await replace([stored(key(1), 1), stored("gone", 1)], at(1));
  const before = plane.list("t").items;
  const replaced = source.sink().replace(
    range(0, 5 * SLICE_ITEMS).map((n) => stored(key(n), 2)),
    at(9),
  );
  await settled();
  let turns = 1;
  for (; await turn(); turns++) {
    if (plane.list("t").items.length > 2) break;
    expect(plane.list("t").items).toBe(before);
    expect(plane.get("t", key(1)).version).toBe("1");
    expect(source.sink().position()).toEqual(at(1));
  }
  expect(turns).toBeGreaterThan(5);
  while (await turn());
  await replaced;
  expect(shown()).toEqual(range(0, 5 * SLICE_ITEMS).map((n) => `${key(n)}@2`));
  expect(plane.get("t", "gone").data).toBeUndefined();
  expect(source.sink().position()).toEqual(at(9));
});

test("applies changes during a replace after it, in order, without a visible partial state", async () => {
  const change = fc.record({
    n: fc.nat({ max: 3 * SLICE_ITEMS }),
    version: fc.integer({ min: 1, max: 9 }),
    gone: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: SLICE_ITEMS, max: 3 * SLICE_ITEMS }),
      fc.nat({ max: SLICE_ITEMS }),
      fc.array(fc.array(change, { minLength: 1, maxLength: 5 }), { maxLength: 4 }),
      async (length, offset, batches) => {
        const { source, turn, replace, shown } = await testSlices();
        await replace(
          range(0, length).map((n) => stored(key(n), 5)),
          at(1),
        );
        const expected = new Map(range(offset, offset + length).map((n) => [key(n), 3]));
        const states = [shown().join(), [...expected].map(([k, v]) => `${k}@${v}`).join()];
        const tombstones = new Map<string, number>();
        const sink = source.sink();
        const work = [
          sink.replace(
            range(offset, offset + length)
              .map((n) => stored(key(n), 3))
              .reverse(),
            at(20),
          ),
        ];
        for (const [i, batch] of batches.entries()) {
          const updates = batch.map(({ n, version, gone }) => update(key(n), version, gone ? null : { n }));
          work.push(sink.apply(updates, at(21 + i)));
          for (const { n, version, gone } of batch) {
            if (version <= (expected.get(key(n)) ?? tombstones.get(key(n)) ?? 0)) continue;
            expected.delete(key(n));
            tombstones.delete(key(n));
            if (gone) tombstones.set(key(n), version);
            else expected.set(key(n), version);
          }
          states.push(
            [...expected]
              .map(([k, v]) => `${k}@${v}`)
              .sort()
              .join(),
          );
        }
        await settled();
        let last = 0;
        do {
          const now = states.indexOf(shown().join(), last);
          expect(now).toBeGreaterThanOrEqual(last);
          last = now;
        } while (await turn());
        await Promise.all(work);
        expect(shown().join()).toBe(states.at(-1));
        expect(sink.position()).toEqual(at(20 + batches.length));
      },
    ),
    { numRuns: 5 },
  );
});

test("loads stored documents in slices too", async () => {
  const storage = memory();
  const put = range(0, 2 * SLICE_ITEMS).map((n) => stored(key(n), 1));
  await storage.commit("s", "t", { replace: true, put, remove: [], cursor: at(4) });
  const { plane, source, turn } = await testSlices({ storage });
  expect(plane.list("t")).toMatchObject({ items: [], phase: "loading" });
  while (await turn());
  expect(plane.list("t").items).toHaveLength(2 * SLICE_ITEMS);
  expect(source.sink().position()).toEqual(at(4));
});

test("a topic with documents is never shown as loading, however slow the storage is", async () => {
  const storage = memory();
  const slow = Promise.withResolvers<void>();
  const commit: typeof storage.commit = async (...change) => {
    await slow.promise;
    return storage.commit(...change);
  };
  const { plane, place, source } = await testSlices({ storage: { ...storage, commit } });
  const seen: string[] = [];
  plane.subscribe("t", () => {
    const { items, phase } = plane.list("t");
    seen.push(`${items.length} ${phase}`);
  });
  source.sink().phase("loading");
  const replaced = source.sink().replace([stored("a", 1)], at(1));
  await place.pass(COMMIT_PATIENCE_MS - 1);
  expect(plane.list("t")).toMatchObject({ items: [{ key: "a" }], phase: "replaying" });
  expect(plane.get("t", "a")).toMatchObject({ version: "1", phase: "replaying" });
  expect(source.sink().position()).toBeUndefined();
  await place.pass(1);
  await replaced;
  expect(source.sink().position()).toEqual(at(1));
  slow.resolve();
  source.sink().phase("replaying");
  source.sink().phase("live");
  await place.pass(1_000);
  expect(new Set(seen)).toEqual(new Set(["1 replaying", "1 live"]));
});

test("a mirrored topic stops loading with its first documents", async () => {
  const leader = await testSlices();
  const follower = testPlane();
  follower.plane.setStoring(false);
  follower.plane.setSource(leader.plane);
  follower.plane.subscribe("t", () => {});
  await settled();
  expect(follower.plane.list("t")).toMatchObject({ items: [], phase: "loading" });
  await leader.replace([stored("a", 1)], at(1));
  await settled();
  expect(follower.plane.list("t")).toMatchObject({ items: [{ key: "a" }], phase: "replaying" });
});
