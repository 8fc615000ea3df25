import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, describe, it } from "vitest";
import { asyncStorage } from "./async_storage.ts";
import { storageConformance } from "./conformance.ts";
import type { StorageUnderTest } from "./conformance_support.ts";
import { localStorage } from "./local_storage.ts";
import { memory } from "./memory.ts";
import { sqlite } from "./sqlite.ts";
import { expoShape, FakeLocalStorage, Faults, FileAsyncStorage, faultySync } from "./test_support.ts";

const folder = mkdtempSync(join(tmpdir(), "khala-storage-"));
let stores = 0;
const place = () => join(folder, String(stores++));
afterAll(() => rmSync(folder, { recursive: true }));

function conforms(name: string, make: () => StorageUnderTest): void {
  describe(`the storage ${name}`, () => {
    for (const check of storageConformance) it(check.name, () => check.run(make()));
  });
}

conforms("memory", () => {
  const storage = memory();
  return { persistent: false, open: async () => storage };
});

conforms("localStorage", () => {
  const store = new FakeLocalStorage();
  return {
    persistent: true,
    open: async () => localStorage({ store }),
    failing: (n, work) => store.faults.failing(n, work),
    async corrupt(scope) {
      const part = [...store.entries.keys()].find((key) => key.includes(scope) && !key.endsWith("head"));
      store.entries.set(part!, store.entries.get(part!)!.slice(0, 20));
    },
  };
});

for (const valueSize of [200, undefined])
  conforms(`AsyncStorage${valueSize ? ` with values of ${valueSize} characters` : ""}`, () => {
    const store = valueSize ? asyncOnMap() : new FileAsyncStorage(place());
    return {
      persistent: true,
      open: async () => asyncStorage(store, valueSize ? { valueSize } : {}),
      failing: (n, work) => store.faults.failing(n, work),
      async corrupt(scope) {
        const head = (await store.getAllKeys()).find((key) => key.includes(scope) && key.endsWith("head"));
        await store.setItem(head!, "{");
      },
    };
  });

/** AsyncStorage of version 3, in memory: thousands of values are too many for files. */
function asyncOnMap() {
  const local = new FakeLocalStorage();
  local.quota = Number.POSITIVE_INFINITY;
  const set = (key: string, value: string) => local.faults.step(() => void local.entries.set(key, value));
  return {
    faults: local.faults,
    getItem: async (key: string) => local.getItem(key),
    setItem: async (key: string, value: string) => set(key, value),
    removeItem: async (key: string) => local.removeItem(key),
    getAllKeys: async () => [...local.entries.keys()],
    async setMany(entries: Record<string, string>) {
      for (const [key, value] of Object.entries(entries)) set(key, value);
    },
    async removeMany(keys: string[]) {
      for (const key of keys) local.removeItem(key);
    },
  };
}

for (const [name, shape] of [
  ["node:sqlite", faultySync],
  ["expo-sqlite", expoShape],
] as const)
  conforms(name, () => {
    const file = `${place()}.db`;
    const faults = new Faults();
    return {
      persistent: true,
      open: async () => sqlite(shape(openDatabase(file), faults)),
      failing: (n, work) => faults.failing(n, work),
      async corrupt(scope) {
        const database = new DatabaseSync(file);
        database.prepare("UPDATE khala_documents_1 SET payload = '{' WHERE scope = ?").run(scope);
        database.close();
      },
    };
  });

/** A database that does not wait for the disk: these tests do not cut the power. */
function openDatabase(file: string): DatabaseSync {
  const database = new DatabaseSync(file);
  database.exec("PRAGMA synchronous = OFF");
  return database;
}
