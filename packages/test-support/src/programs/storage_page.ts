import {
  indexedDb,
  localStorage,
  type Storage,
  type StorageUnderTest,
  storageConformance,
} from "@khala/client/storage";

/** The real stores of the browser that runs this page, with failures at chosen steps. */
interface Browser {
  readonly localStorage: NonNullable<NonNullable<Parameters<typeof localStorage>[0]>["store"]>;
  readonly IDBObjectStore: {
    readonly prototype: Record<"put" | "delete", (this: IdbStore, ...args: never[]) => unknown>;
  };
  readonly indexedDB: { open(name: string): IdbRequest };
}
interface IdbStore {
  readonly transaction: { abort(): void };
}
interface IdbRequest {
  readonly result: {
    transaction(
      stores: string[],
      mode: string,
    ): {
      oncomplete: (() => void) | null;
      objectStore(name: string): { put(value: unknown, key: unknown): void };
    };
    close(): void;
  };
  onsuccess: (() => void) | null;
}
const browser = globalThis as never as Browser;

/** Runs one check of the suite on a driver; resolves with its error. */
async function check(driver: "localStorage" | "indexedDb", name: string): Promise<string | undefined> {
  try {
    const found = storageConformance.find((candidate) => candidate.name === name);
    if (!found) throw new Error(`There is no check ${name}.`);
    await found.run(driver === "localStorage" ? onLocalStorage() : onIndexedDb());
    return undefined;
  } catch (error) {
    return String((error as Error).stack);
  }
}

function onLocalStorage(): StorageUnderTest {
  const real = browser.localStorage;
  let left = Number.POSITIVE_INFINITY;
  const step = (take: () => void) => {
    if (left-- === 0)
      throw Object.assign(new Error("The quota has been exceeded."), { name: "QuotaExceededError" });
    take();
  };
  const store = {
    get length() {
      return real.length;
    },
    key: (index: number) => real.key(index),
    getItem: (key: string) => real.getItem(key),
    setItem: (key: string, value: string) => step(() => real.setItem(key, value)),
    removeItem: (key: string) => step(() => real.removeItem(key)),
  };
  return {
    persistent: true,
    open: async () => localStorage({ store }),
    async failing(n, work) {
      left = n;
      await work();
      const there = left < 0;
      left = Number.POSITIVE_INFINITY;
      return there;
    },
    async corrupt(scope) {
      const keys = Array.from({ length: real.length }, (_, i) => real.key(i)!);
      const part = keys.find((key) => key.includes(scope) && !key.endsWith("head"))!;
      real.setItem(part, real.getItem(part)!.slice(0, 20));
    },
  };
}

function onIndexedDb(): StorageUnderTest {
  return {
    persistent: true,
    open: async () => indexedDb(),
    /** Even steps throw before the request is made; odd ones abort the transaction after it. */
    async failing(n, work) {
      const { prototype } = browser.IDBObjectStore;
      const original = { put: prototype.put, delete: prototype.delete };
      let left = n >> 1;
      for (const name of ["put", "delete"] as const)
        prototype[name] = function (...args) {
          const hit = left-- === 0;
          if (hit && n % 2 === 0)
            throw Object.assign(new Error("The quota has been exceeded."), { name: "QuotaExceededError" });
          const request = original[name].apply(this, args);
          if (hit) this.transaction.abort();
          return request;
        };
      try {
        await work();
        return left < 0;
      } finally {
        Object.assign(prototype, original);
      }
    },
    corrupt: (scope, topic) =>
      new Promise((resolve) => {
        const request = browser.indexedDB.open("khala");
        request.onsuccess = () => {
          const db = request.result;
          const transaction = db.transaction(["documents"], "readwrite");
          transaction.objectStore("documents").put({ half: "a document" }, [scope, topic, "zz"]);
          transaction.oncomplete = () => {
            db.close();
            resolve();
          };
        };
      }),
  };
}

const drivers: Record<string, () => Storage> = { localStorage, indexedDb };
const document = (key: string, n: number) => ({
  key,
  version: String(n),
  hash: "h",
  payload: { n, text: "x".repeat(200) },
});

/** Commits while the page lives: all documents are of the same commit as the cursor. */
async function commitForEver(driver: string): Promise<never> {
  const storage = drivers[driver]!();
  let after = (await storage.load("scope", "topic"))?.cursor;
  for (let n = Number(after?.watermark ?? 0) + 1; ; n++) {
    const put = ["a", "b", "c", "d", "e"].map((key) => document(key, n));
    const change = { put, remove: [], cursor: { epoch: "e", watermark: String(n) } };
    await storage.commit("scope", "topic", after ? { after, ...change } : { replace: true, ...change });
    after = change.cursor;
    commits++;
    // IndexedDB yields by itself; a page that only writes to localStorage could never report its progress.
    if (driver === "localStorage") await givingWay();
  }
}
let commits = 0;

const turn = new BroadcastChannel("turn");
const turns = new BroadcastChannel("turn");

/** Resolves after the page's other work. */
function givingWay(): Promise<void> {
  return new Promise((resolve) => {
    turns.onmessage = () => resolve();
    turn.postMessage(null);
  });
}

/** The state a later page finds: the cursor, and the commits of its documents. */
async function stored(driver: string) {
  const found = await drivers[driver]!().load("scope", "topic");
  return (
    found && {
      watermark: Number(found.cursor.watermark),
      documents: found.documents.map(({ payload }) => (payload as { n: number }).n),
    }
  );
}

/** Commits more and more until the store is full; resolves with the error, and whether the state is that of the last commit. */
async function fill() {
  const storage = localStorage();
  let n = 0;
  await storage.commit("scope", "topic", {
    replace: true,
    put: [],
    remove: [],
    cursor: { epoch: "e", watermark: "0" },
  });
  for (;;) {
    try {
      const put = [{ key: `k${n}`, version: "1", hash: "h", payload: "x".repeat(100_000) }];
      await storage.commit("scope", "topic", {
        after: { epoch: "e", watermark: String(n) },
        put,
        remove: [],
        cursor: { epoch: "e", watermark: String(n + 1) },
      });
      n++;
    } catch (error) {
      const { code, message } = error as { code?: string; message: string };
      const after = await localStorage().load("scope", "topic");
      const whole = after?.cursor.watermark === String(n) && after.documents.length === n;
      await storage.commit("scope", "topic", {
        replace: true,
        put: [],
        remove: [],
        cursor: { epoch: "e", watermark: "0" },
      });
      return { code, message, commits: n, whole, keysLeft: browser.localStorage.length };
    }
  }
}

Object.assign(globalThis, {
  khalaStorage: { check, commitForEver, commits: () => commits, stored, fill, indexedDb, localStorage },
});
