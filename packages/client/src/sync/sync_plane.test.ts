import { KhalaError } from "@khala/contracts";
import { expect, test, vi } from "vitest";
import { settled } from "../connection/test_support.ts";
import { memory } from "../storage/memory.ts";
import { answer, at, stored, testPlane, tooLarge, update } from "./test_support.ts";
import { COMMIT_PATIENCE_MS, LOAD_PATIENCE_MS } from "./topic_store.ts";

/** A plane that shows a topic with these documents, live. */
async function livePlane(documents = [stored("a", 1), stored("b", 1)], options = {}) {
  const hand = testPlane(options);
  const told = vi.fn();
  const stop = hand.plane.subscribe("t", told);
  await settled();
  await hand.source.sink().replace(documents, at(1));
  hand.source.sink().phase("live");
  await hand.place.pass(16);
  told.mockClear();
  return { ...hand, told, stop };
}

test("applies only newer updates, also after a deletion", async () => {
  const { plane, source } = await livePlane();
  const sink = source.sink();
  await sink.apply([update("a", 3), update("a", 2), update("b", 2, null)], at(4));
  expect(plane.get("t", "a")).toMatchObject({ data: { version: 3 }, version: "3" });
  await sink.apply([update("b", 1), update("a", 10)], at(6));
  expect(plane.list("t").items.map(({ key, version }) => `${key}@${version}`)).toEqual(["a@10"]);
  await sink.apply([update("b", 3)], at(7));
  expect(plane.list("t").items).toHaveLength(2);
});

test("moves the position only after the changes are applied and stored", async () => {
  const storage = memory();
  let release = () => {};
  const slow = { ...storage, commit: vi.fn(storage.commit) };
  const { plane, source } = await livePlane(undefined, { storage: slow });
  slow.commit.mockImplementationOnce(
    (...change) => new Promise((resolve) => (release = () => resolve(storage.commit(...change)))),
  );
  const applied = source.sink().apply([update("a", 2)], at(2));
  await settled();
  expect(plane.get("t", "a").version).toBe("2");
  expect(source.sink().position()).toEqual(at(1));
  release();
  await applied;
  expect(source.sink().position()).toEqual(at(2));
  expect(await storage.load("s", "t")).toMatchObject({ cursor: at(2) });
});

test("notifies only the affected listeners, once per batch of changes", async () => {
  const { plane, place, source, told } = await livePlane();
  const ofA = vi.fn();
  const ofB = vi.fn();
  plane.subscribe("t", "a", ofA);
  plane.subscribe("t", "b", ofB);
  await place.pass(100);
  source.sink().apply([update("a", 2)], at(2));
  source.sink().apply([update("a", 3), update("c", 1)], at(4));
  await place.pass(100);
  for (let i = 4; i < 50; i++) await source.sink().apply([update("a", i)], at(i + 1));
  expect(told.mock.calls.length).toBeLessThanOrEqual(3);
  await place.pass(16);
  expect(ofA.mock.calls.length).toBe(told.mock.calls.length);
  expect(ofB).not.toHaveBeenCalled();
  source.sink().phase("offline", new KhalaError("unavailable", "gone"));
  await place.pass(16);
  expect(ofB).toHaveBeenCalledOnce();
  expect(plane.get("t", "b")).toMatchObject({ phase: "offline", error: { code: "unavailable" }, data: {} });
});

test("returns the same snapshot objects until they change", async () => {
  const { plane, source } = await livePlane();
  const [list, a, b, none] = [
    plane.list("t"),
    plane.get("t", "a"),
    plane.get("t", "b"),
    plane.get("t", "none"),
  ];
  await source.sink().apply([update("a", 1)], at(2));
  source.sink().phase("live");
  expect(plane.list("t")).toBe(list);
  expect(plane.get("t", "none")).toBe(none);
  await source.sink().apply([update("a", 2)], at(3));
  expect(plane.get("t", "a")).not.toBe(a);
  expect(plane.get("t", "b")).toBe(b);
  expect(plane.list("t").items[1]).toBe(list.items[1]);
  expect(plane.get("elsewhere", "a")).toBe(plane.get("elsewhere", "b"));
});

test("replaces in one step, keeps unchanged objects, and accepts lower versions", async () => {
  const { plane, place, source } = await livePlane([stored("a", 5), stored("b", 5), stored("c", 5)]);
  const before = plane.list("t");
  const seen: number[] = [];
  plane.subscribe("t", () => seen.push(plane.list("t").items.length));
  await source.sink().replace([stored("a", 5), stored("b", 2)], at(1, "other"));
  await place.pass(16);
  expect(seen).toEqual([2]);
  const { items } = plane.list("t");
  expect(items.map(({ version }) => version)).toEqual(["5", "2"]);
  expect(items[0]).toBe(before.items[0]);
  await source.sink().apply([update("c", 1)], at(2, "other"));
  expect(plane.get("t", "c").version).toBe("1");
});

test("fetches a document conditionally, and shows the old one as stale until then", async () => {
  const { plane, source, asked, storage } = await livePlane();
  await source.sink().apply([tooLarge("a", 2), tooLarge("c", 1)], at(3));
  expect(plane.get("t", "a")).toMatchObject({ data: { version: 1 }, version: "1", stale: true });
  expect(plane.list("t").items.map(({ key }) => key)).toEqual(["a", "b"]);
  expect(source.sink().position()).toEqual(at(3));
  expect((await storage.load("s", "t"))?.documents.find(({ key }) => key === "a")).not.toHaveProperty(
    "payload",
  );
  expect(asked.map(({ path, options }) => [path, options.headers])).toEqual([
    ["/sync/v1/doc/a", { "if-none-match": '"a@1"' }],
    ["/sync/v1/doc/c", {}],
  ]);
  asked[0]!.settle.resolve(
    answer({ doc_key: "a", doc_version: "2", payload: { big: 1 }, payload_hash: "a@2" }),
  );
  asked[1]!.settle.resolve(
    answer({ doc_key: "c", doc_version: "4", payload: { big: 2 }, payload_hash: "c@4" }),
  );
  await settled();
  expect(plane.get("t", "a")).toMatchObject({ data: { big: 1 }, version: "2", stale: false });
  // The fetched document is newer than the announced one, so that announcement is outdated.
  await source.sink().apply([update("c", 4, { old: true })], at(5));
  expect(plane.get("t", "c")).toMatchObject({ data: { big: 2 }, version: "4" });
});

test("304 and an equal hash confirm the shown document; 404 deletes it", async () => {
  const { plane, source, asked } = await livePlane();
  await source.sink().apply([tooLarge("a", 2, "a@1")], at(2));
  expect(plane.get("t", "a")).toMatchObject({ data: { version: 1 }, version: "2", stale: false });
  await source.sink().apply([tooLarge("a", 3), tooLarge("b", 2)], at(4));
  asked[0]!.settle.resolve(answer(undefined, 304));
  asked[1]!.settle.reject(new KhalaError("not_found", "gone"));
  await settled();
  expect(plane.get("t", "a")).toMatchObject({ data: { version: 1 }, version: "3", stale: false });
  expect(plane.list("t").items.map(({ key }) => key)).toEqual(["a"]);
});

test("fetches a few at a time, retries failures, and continues after a restart", async () => {
  const storage = memory();
  const { place, source, asked, stop, events } = await livePlane([], { storage });
  await source.sink().apply(
    Array.from({ length: 9 }, (_, i) => tooLarge(`k${i}`, 1)),
    at(9),
  );
  expect(asked).toHaveLength(4);
  asked[0]!.settle.reject(new KhalaError("unavailable", "later"));
  await settled();
  expect(asked).toHaveLength(5);
  expect(events.map(({ event }) => event)).toEqual(["document_not_fetched"]);
  for (const one of asked.slice(1)) one.settle.reject(new KhalaError("unavailable", "later"));
  await settled();
  expect(asked).toHaveLength(9);
  stop();
  await place.pass(10_000);
  const again = testPlane({ storage });
  again.plane.subscribe("t", () => {});
  await settled();
  expect(again.asked).toHaveLength(4);
});

test("follows a topic while it has subscribers, and a little longer", async () => {
  const { plane, place, source, stop } = await livePlane();
  const { signal } = source.followed[0]!;
  const again = plane.subscribe("t", () => {});
  stop();
  stop();
  await place.pass(60_000);
  expect(signal.aborted).toBe(false);
  again();
  await place.pass(4_999);
  plane.subscribe("t", () => {})();
  await place.pass(4_999);
  expect(signal.aborted).toBe(false);
  await place.pass(1);
  expect(signal.aborted).toBe(true);
  expect(plane.list("t")).toMatchObject({ items: [], phase: "loading" });
  // Stored documents are shown again at once.
  plane.subscribe("t", () => {});
  await settled();
  expect(plane.list("t").items).toHaveLength(2);
  expect(source.sink().position()).toEqual(at(1));
});

test("ready resolves with the first complete state, and rejects for a forbidden topic or an abort", async () => {
  const { plane, place, source } = testPlane();
  const ready = plane.ready("t");
  const forbidden = expect(plane.ready("u")).rejects.toMatchObject({ code: "forbidden_topic" });
  const given = new AbortController();
  const aborted = expect(plane.ready("v", given)).rejects.toBe("enough");
  given.abort("enough");
  await aborted;
  await settled();
  await source.sink().replace([], at(1));
  source.sink("u").phase("forbidden", new KhalaError("forbidden_topic", "no"));
  await place.pass(16);
  await ready;
  await forbidden;
});

test("reports a failing storage, clears it, and stores the next full list again", async () => {
  const storage = memory();
  const failing = { ...storage, commit: vi.fn(storage.commit), clear: vi.fn(storage.clear) };
  const { plane, source, events } = await livePlane(undefined, { storage: failing });
  failing.commit.mockRejectedValueOnce(new Error("quota"));
  await source.sink().apply([update("a", 2)], at(2));
  expect(plane.get("t", "a").version).toBe("2");
  expect(source.sink().position()).toEqual(at(2));
  expect(events.map(({ event }) => event)).toEqual(["storage_failed"]);
  expect(failing.clear).toHaveBeenCalledWith("s", "t");
  await source.sink().apply([update("a", 3)], at(3));
  expect(await storage.load("s", "t")).toBeUndefined();
  await source.sink().replace([stored("a", 4)], at(4));
  await source.sink().apply([update("b", 7)], at(5));
  expect(await storage.load("s", "t")).toEqual({
    documents: [stored("a", 4), stored("b", 7)],
    cursor: at(5),
  });
});

test("ignores a storage that cannot be read", async () => {
  const load = () => Promise.reject(new Error("corrupt"));
  const { plane, source, events } = testPlane({ storage: { ...memory(), load } });
  plane.subscribe("t", () => {});
  await settled();
  expect(events.map(({ event }) => event)).toEqual(["storage_unreadable"]);
  await source.sink().replace([stored("a", 1)], at(1));
  expect(plane.list("t").items).toHaveLength(1);
});

test("a storage that never answers delays neither the first documents nor changes", async () => {
  const never = () => new Promise<never>(() => {});
  const storage = { ...memory(), load: never, commit: never, clear: never };
  const { plane, place, source, events } = testPlane({ storage });
  plane.subscribe("t", () => {});
  await place.pass(LOAD_PATIENCE_MS);
  expect(events.map(({ event }) => event)).toEqual(["storage_late"]);
  const sink = source.sink();
  await sink.replace([stored("a", 1)], at(1));
  for (let n = 2; n < 50; n++) await sink.apply([update("a", n)], at(n));
  expect(plane.get("t", "a").version).toBe("49");
  expect(sink.position()).toEqual(at(49));
});

test("a storage that hung stores the whole topic when it answers again", async () => {
  const storage = memory();
  const slow = { ...storage, commit: vi.fn(storage.commit) };
  const { plane, place, source } = await livePlane(undefined, { storage: slow });
  const answers = Promise.withResolvers<void>();
  slow.commit.mockImplementationOnce(async (...change) => {
    await answers.promise;
    return storage.commit(...change);
  });
  const sink = source.sink();
  const first = sink.apply([update("a", 2)], at(2));
  await place.pass(COMMIT_PATIENCE_MS);
  await first;
  await sink.apply([update("b", 2)], at(3));
  expect(plane.get("t", "b").version).toBe("2");
  answers.resolve();
  await settled();
  await sink.apply([update("c", 1)], at(4));
  expect(await storage.load("s", "t")).toMatchObject({ cursor: at(4) });
  expect(
    (await storage.load("s", "t"))?.documents.map(({ key, version }) => `${key}@${version}`).sort(),
  ).toEqual(["a@2", "b@2", "c@1"]);
});

test("a new scope hides the documents of the old one, and shows those stored for it", async () => {
  const storage = memory();
  await storage.commit("bob", "t", { replace: true, put: [stored("b1", 1)], remove: [], cursor: at(8) });
  const { plane, source } = await livePlane(undefined, { storage });
  plane.setScope("bob");
  expect(plane.list("t").items).toEqual([]);
  await settled();
  expect(plane.list("t").items.map(({ key }) => key)).toEqual(["b1"]);
  expect(source.sink().position()).toEqual(at(8));
  expect(await storage.load("s", "t")).toMatchObject({ cursor: at(1) });
});

test("a new source continues from the same position, and the old one is released", async () => {
  const { plane, source } = await livePlane();
  await source.sink().apply([update("a", 2)], at(2));
  plane.setSource(undefined);
  expect(source.followed[0]!.signal.aborted).toBe(true);
  plane.setSource(source);
  expect(source.sink().position()).toEqual(at(2));
  expect(plane.list("t").items).toHaveLength(2);
});

test("a plane that follows another has its documents, and every change", async () => {
  const leader = await livePlane();
  const follower = testPlane();
  follower.plane.setStoring(false);
  follower.plane.setSource(leader.plane);
  follower.plane.subscribe("t", () => {});
  await settled();
  expect(follower.plane.list("t")).toMatchObject({ phase: "live", items: leader.plane.list("t").items });
  await leader.source.sink().apply([update("a", 2), update("b", 2, null)], at(3));
  await settled();
  expect(follower.plane.list("t").items.map(({ version }) => version)).toEqual(["2"]);
  expect(await follower.storage.load("s", "t")).toBeUndefined();
  // It takes over: it stores its documents, and continues by itself.
  follower.plane.setStoring(true);
  follower.plane.setSource(follower.source);
  await settled();
  expect(await follower.storage.load("s", "t")).toMatchObject({ cursor: at(3) });
  expect(follower.source.sink().position()).toEqual(at(3));
});

test("reads a document by key without following its topic; a missing one is undefined", async () => {
  const { plane, asked, source } = testPlane();
  const read = plane.read("run:a/b");
  expect(asked[0]?.path).toBe("/sync/v1/doc/run%3Aa%2Fb");
  const updated_at = "2026-01-01T00:00:00Z";
  asked[0]!.settle.resolve(
    answer({ doc_key: "run:a/b", doc_version: "3", payload: { title: "A" }, updated_at }),
  );
  expect(await read).toEqual({ key: "run:a/b", version: "3", data: { title: "A" }, updatedAt: updated_at });
  const missing = plane.read("run:none");
  asked[1]!.settle.reject(new KhalaError("not_found", "There is no such document."));
  expect(await missing).toBeUndefined();
  const broken = plane.read("run:a");
  asked[2]!.settle.reject(new KhalaError("unavailable", "Later."));
  await expect(broken).rejects.toMatchObject({ code: "unavailable" });
  expect(source.followed).toEqual([]);
});

test("a listener that throws does not stop the other listeners", async () => {
  const { plane, place, source, told, events } = await livePlane();
  plane.subscribe("t", () => {
    throw new Error("oops");
  });
  await source.sink().apply([update("a", 2)], at(2));
  await place.pass(16);
  expect(told).toHaveBeenCalledOnce();
  expect(events.map(({ event }) => event)).toEqual(["listener_failed"]);
});

test("remembers deletions up to a limit, also in the storage", async () => {
  const { source, storage } = await livePlane([]);
  const gone = Array.from({ length: 10_050 }, (_, i) => update(`k${String(i).padStart(5, "0")}`, 2, null));
  await source.sink().apply(gone, at(2));
  const { documents } = (await storage.load("s", "t"))!;
  expect(documents.filter(({ deleted }) => deleted)).toHaveLength(10_000);
  expect(documents.some(({ key }) => key === "k00049")).toBe(false);
});

test("keeps the shown documents after close, and leaves no timer behind", async () => {
  const { plane, place, stop } = await livePlane();
  plane.close();
  await settled();
  expect(plane.list("t").items).toHaveLength(2);
  stop();
  expect(place.timers).toBe(0);
  expect(plane.list("t").items).toEqual([]);
});
