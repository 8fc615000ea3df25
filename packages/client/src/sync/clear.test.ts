import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { settled } from "../connection/test_support.ts";
import { asyncStorage } from "../storage/async_storage.ts";
import { localStorage } from "../storage/local_storage.ts";
import { memory } from "../storage/memory.ts";
import { sqlite } from "../storage/sqlite.ts";
import type { Storage } from "../storage/storage.ts";
import { FakeLocalStorage } from "../storage/test_support.ts";
import { at, stored, testPlane, update } from "./test_support.ts";

/** Drivers; each opens a store that is empty. */
const DRIVERS: Readonly<Record<string, () => Storage>> = {
  memory: () => memory(),
  "node:sqlite": () => sqlite(new DatabaseSync(":memory:")),
  localStorage: () => localStorage({ store: new FakeLocalStorage() }),
  AsyncStorage: () => {
    const local = new FakeLocalStorage();
    return asyncStorage({
      getItem: async (key) => local.getItem(key),
      setItem: async (key, value) => local.setItem(key, value),
      removeItem: async (key) => local.removeItem(key),
      getAllKeys: async () => [...local.entries.keys()],
    });
  },
};

/** A server's history of one topic: step n sets document n modulo 5. */
const keyOf = (n: number) => `k${n % 5}`;
function historyAt(watermark: number) {
  const documents = new Map<string, ReturnType<typeof stored>>();
  for (let n = 1; n <= watermark; n++) documents.set(keyOf(n), stored(keyOf(n), n));
  return [...documents.values()];
}

/** A client that has caught up with the server's history. */
async function follow(storage: Storage, watermark: number) {
  const { plane, source, events } = testPlane({ storage });
  plane.subscribe("t", () => {});
  for (let turns = 0; source.followed.length === 0; turns++) {
    expect(turns).toBeLessThan(100);
    await settled();
  }
  const sink = source.sink();
  const position = sink.position();
  if (position) await receive(sink, Number(position.watermark), watermark);
  else await sink.replace(historyAt(watermark), at(watermark));
  return { plane, sink, events };
}

type Sink = ReturnType<ReturnType<typeof testPlane>["source"]["sink"]>;

async function receive(sink: Sink, from: number, to: number): Promise<void> {
  const updates = [];
  for (let n = from + 1; n <= to; n++) updates.push(update(keyOf(n), n));
  await sink.apply(updates, at(to));
}

const shown = ({ plane }: Awaited<ReturnType<typeof follow>>) =>
  Object.fromEntries(plane.list("t").items.map(({ key, version }) => [key, version]));
const expected = (watermark: number) =>
  Object.fromEntries(historyAt(watermark).map(({ key, version }) => [key, version]));

describe.each(Object.entries(DRIVERS))("the storage %s, cleared while a client is open", (_name, open) => {
  test.each([[[]], [["s"]], [["s", "t"]]])(
    "by clear(%j): the next start has every document again",
    async (what) => {
      const storage = open();
      const first = await follow(storage, 5);
      await storage.clear(...what);
      // A heartbeat moves the position, and changes no document.
      await first.sink.apply([], at(6));
      expect(await storage.load("s", "t")).toBeUndefined();
      expect(shown(first)).toEqual(expected(5));
      expect(first.events.map(({ event }) => event)).toEqual(["storage_changed"]);
      first.plane.close();
      const second = await follow(storage, 6);
      expect(shown(second)).toEqual(expected(6));
      expect((await storage.load("s", "t"))?.documents).toHaveLength(5);
    },
  );

  test("writes nothing after the clear until the topic is listed again", async () => {
    const storage = open();
    const { sink } = await follow(storage, 5);
    await storage.clear();
    for (let n = 5; n < 9; n++) await receive(sink, n, n + 1);
    expect(await storage.load("s", "t")).toBeUndefined();
    await sink.replace(historyAt(9), at(9));
    await receive(sink, 9, 10);
    expect((await storage.load("s", "t"))?.cursor).toEqual(at(10));
  });

  test("writes nothing when another tab takes over after the clear", async () => {
    const storage = open();
    const leader = await follow(storage, 5);
    const { plane, events } = testPlane({ storage });
    plane.setStoring(false);
    plane.setSource(leader.plane);
    plane.subscribe("t", () => {});
    for (let turns = 0; plane.list("t").items.length < 5; turns++) {
      expect(turns).toBeLessThan(100);
      await settled();
    }
    leader.plane.close();
    await storage.clear();
    plane.setStoring(true);
    for (let turns = 0; events.length === 0; turns++) {
      expect(turns).toBeLessThan(100);
      await settled();
    }
    expect(events.map(({ event }) => event)).toEqual(["storage_changed"]);
    expect(await storage.load("s", "t")).toBeUndefined();
    expect(plane.list("t").items).toHaveLength(5);
  });

  test("clearing a conversation keeps the stored topics", async () => {
    const storage = open();
    const { sink } = await follow(storage, 5);
    await storage.clear("s", "conversation:c1");
    await receive(sink, 5, 6);
    expect((await storage.load("s", "t"))?.cursor).toEqual(at(6));
  });

  test.each([1, 2, 3, 4])("at any time: seed %i", async (seed) => {
    let state = seed;
    const random = (below: number) => {
      state = (state * 48_271) % 2_147_483_647;
      return state % below;
    };
    const storage = open();
    let watermark = 5;
    let client = await follow(storage, watermark);
    for (let step = 0; step < 60; step++) {
      const what = random(8);
      if (what === 0) await storage.clear();
      else if (what === 1) await storage.clear("s", random(2) ? "t" : "conversation:c1");
      else if (what === 2) {
        client.plane.close();
        client = await follow(storage, watermark);
      } else {
        const next = watermark + random(3);
        await receive(client.sink, watermark, next);
        watermark = next;
      }
      expect(shown(client)).toEqual(expected(watermark));
    }
  });
});
