import { expect, test } from "vitest";
import { asyncStorage } from "./async_storage.ts";
import { puts, range } from "./conformance_support.ts";
import { localStorage } from "./local_storage.ts";
import { FakeLocalStorage } from "./test_support.ts";

const at = (watermark: number) => ({ epoch: "e", watermark: String(watermark) });
const bytes = ({ entries }: FakeLocalStorage) =>
  [...entries].reduce((sum, [key, value]) => sum + key.length + value.length, 0);

test("stores any number of changes in few values, little larger than the documents", async () => {
  const store = new FakeLocalStorage();
  const storage = localStorage({ store });
  const once = localStorage({ store: new FakeLocalStorage() });
  await once.commit("s", "t", {
    replace: true,
    put: puts(
      range(50).map((n) => `k${n}`),
      999,
    ),
    remove: [],
    cursor: at(1),
  });
  let most = 0;
  await storage.commit("s", "t", { replace: true, put: [], remove: [], cursor: at(0) });
  for (const n of range(1_000)) {
    const change = { put: puts([`k${n % 50}`], n), remove: [], cursor: at(n + 1) };
    await storage.commit("s", "t", { after: at(n), ...change });
    most = Math.max(most, store.length);
  }
  expect(most).toBeLessThan(20);
  expect(bytes(store)).toBeLessThan(50 * 150 * 4);
  expect((await storage.load("s", "t"))?.documents).toHaveLength(50);
});

test("a full store accepts further changes as long as they fit", async () => {
  const store = new FakeLocalStorage();
  const storage = localStorage({ store });
  await storage.commit("s", "t", {
    replace: true,
    put: puts(
      range(300).map((n) => `k${n}`),
      0,
    ),
    remove: [],
    cursor: at(0),
  });
  store.quota = bytes(store) + 15_000;
  let stored = 0;
  let error: unknown;
  for (const n of range(1_000)) {
    try {
      const change = { put: puts([`k${n}`], n), remove: [], cursor: at(n) };
      await storage.commit("s", "t", { after: at(stored), ...change });
      stored = n;
    } catch (cause) {
      error = cause;
      break;
    }
  }
  expect(error).toMatchObject({ code: "limit_exceeded" });
  expect(stored).toBeGreaterThan(60);
  const after = await localStorage({ store }).load("s", "t");
  expect(after?.cursor).toEqual(at(stored));
  expect(after?.documents.find(({ key }) => key === `k${stored}`)?.version).toBe(String(stored));
});

test("values have a bounded size, except for a single larger document", async () => {
  const sizes: number[] = [];
  const entries = new Map<string, string>();
  const storage = asyncStorage(
    {
      getItem: async (key) => entries.get(key) ?? null,
      setItem: async (key, value) => {
        if (!key.endsWith("head")) sizes.push(value.length);
        entries.set(key, value);
      },
      removeItem: async (key) => void entries.delete(key),
      getAllKeys: async () => [...entries.keys()],
    },
    { valueSize: 1_000 },
  );
  const put = puts(
    range(100).map((n) => `k${n}`),
    1,
  );
  await storage.commit("s", "t", { replace: true, put, remove: [], cursor: at(1) });
  expect(Math.max(...sizes)).toBeLessThan(1_200);
  const large = { key: "large", version: "1", hash: "h", payload: "x".repeat(5_000) };
  await storage.commit("s", "t", { after: at(1), put: [large], remove: [], cursor: at(2) });
  expect((await storage.load("s", "t"))?.documents).toHaveLength(101);
});

test("removes the remains of a crash when the topic is opened again", async () => {
  const store = new FakeLocalStorage();
  const whole = { replace: true, put: puts(["a"], 1), remove: [], cursor: at(1) } as const;
  await localStorage({ store }).commit("s", "t", whole);
  const before = store.length;
  await store.faults.failing(2, () =>
    localStorage({ store })
      .commit("s", "t", { replace: true, put: puts(["b"], 2), remove: [], cursor: at(2) })
      .catch(() => {}),
  );
  expect(store.length).toBe(before + 1);
  expect((await localStorage({ store }).load("s", "t"))?.cursor).toEqual(at(1));
  expect(store.length).toBe(before);
});

test("leaves keys of others alone", async () => {
  const store = new FakeLocalStorage();
  store.setItem("theirs", "kept");
  const storage = localStorage({ store });
  await storage.commit("s", "t", { replace: true, put: puts(["a"], 1), remove: [], cursor: at(1) });
  await storage.clear();
  expect([...store.entries]).toEqual([["theirs", "kept"]]);
});
