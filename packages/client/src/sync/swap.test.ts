import fc from "fast-check";
import { expect, test } from "vitest";
import { settled } from "../connection/test_support.ts";
import { memory } from "../storage/memory.ts";
import { at, handPlane, stored, update } from "./test_support.ts";
import { TURN } from "./turns.ts";

const key = (n: number) => `k${String(n).padStart(6, "0")}`;
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

/** A plane that gives way when its test says so. */
async function handTurns(options: Parameters<typeof handPlane>[0] = {}) {
  const hand = handPlane(options);
  const waiting: (() => void)[] = [];
  Object.assign(hand.place, { giveWay: () => new Promise<void>((resolve) => waiting.push(resolve)) });
  hand.plane.subscribe("t", () => {});
  await settled();
  /** Lets it go on until it gives way again; false when it is done. */
  const turn = async () => {
    const next = waiting.shift();
    next?.();
    await settled();
    return next !== undefined;
  };
  const swap = async (...[documents, cursor]: Parameters<ReturnType<typeof hand.source.sink>["swap"]>) => {
    const swapped = hand.source.sink().swap(documents, cursor);
    await settled();
    while (await turn());
    await swapped;
  };
  const shown = () => hand.plane.list("t").items.map((item) => `${item.key}@${item.version}`);
  return { ...hand, turn, swap, shown };
}

test("a large swap gives way, and until its last turn everything is as it was", async () => {
  const { plane, source, turn, swap, shown } = await handTurns();
  await swap([stored(key(1), 1), stored("gone", 1)], at(1));
  const before = plane.list("t").items;
  const swapped = source.sink().swap(
    range(0, 5 * TURN).map((n) => stored(key(n), 2)),
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
  await swapped;
  expect(shown()).toEqual(range(0, 5 * TURN).map((n) => `${key(n)}@2`));
  expect(plane.get("t", "gone").data).toBeUndefined();
  expect(source.sink().position()).toEqual(at(9));
});

test("what comes while a swap is under way is applied behind it, in order, and no half of anything is ever seen", async () => {
  const change = fc.record({
    n: fc.nat({ max: 3 * TURN }),
    version: fc.integer({ min: 1, max: 9 }),
    gone: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: TURN, max: 3 * TURN }),
      fc.nat({ max: TURN }),
      fc.array(fc.array(change, { minLength: 1, maxLength: 5 }), { maxLength: 4 }),
      async (length, offset, batches) => {
        const { source, turn, swap, shown } = await handTurns();
        await swap(
          range(0, length).map((n) => stored(key(n), 5)),
          at(1),
        );
        const expected = new Map(range(offset, offset + length).map((n) => [key(n), 3]));
        const states = [shown().join(), [...expected].map(([k, v]) => `${k}@${v}`).join()];
        const tombstones = new Map<string, number>();
        const sink = source.sink();
        const work = [
          sink.swap(
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
    { numRuns: 15 },
  );
});

test("what is stored is loaded in turns too", async () => {
  const storage = memory();
  const put = range(0, 2 * TURN).map((n) => stored(key(n), 1));
  await storage.commit("s", "t", { replace: true, put, remove: [], cursor: at(4) });
  const { plane, source, turn } = await handTurns({ storage });
  expect(plane.list("t")).toMatchObject({ items: [], phase: "loading" });
  while (await turn());
  expect(plane.list("t").items).toHaveLength(2 * TURN);
  expect(source.sink().position()).toEqual(at(4));
});

test("a topic that has documents is never said to be loading, however long the storage takes", async () => {
  const storage = memory();
  const slow = Promise.withResolvers<void>();
  const commit: typeof storage.commit = async (...change) => {
    await slow.promise;
    return storage.commit(...change);
  };
  const { plane, place, source } = await handTurns({ storage: { ...storage, commit } });
  const seen: string[] = [];
  plane.subscribe("t", () => {
    const { items, phase } = plane.list("t");
    seen.push(`${items.length} ${phase}`);
  });
  source.sink().phase("loading");
  const swapped = source.sink().swap([stored("a", 1)], at(1));
  await place.pass(1_000);
  expect(plane.list("t")).toMatchObject({ items: [{ key: "a" }], phase: "replaying" });
  expect(plane.get("t", "a")).toMatchObject({ version: "1", phase: "replaying" });
  expect(source.sink().position()).toBeUndefined();
  slow.resolve();
  await swapped;
  source.sink().phase("replaying");
  source.sink().phase("live");
  await place.pass(1_000);
  expect(new Set(seen)).toEqual(new Set(["1 replaying", "1 live"]));
});

test("whoever mirrors a topic is told with the first documents that it is not loading any more", async () => {
  const leader = await handTurns();
  const follower = handPlane();
  follower.plane.setStoring(false);
  follower.plane.setSource(leader.plane);
  follower.plane.subscribe("t", () => {});
  await settled();
  expect(follower.plane.list("t")).toMatchObject({ items: [], phase: "loading" });
  await leader.swap([stored("a", 1)], at(1));
  await settled();
  expect(follower.plane.list("t")).toMatchObject({ items: [{ key: "a" }], phase: "replaying" });
});
