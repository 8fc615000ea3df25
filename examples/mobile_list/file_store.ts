import { readFileSync, renameSync, writeFileSync } from "node:fs";
import type { AsyncStorageLike } from "@khala/client/storage";

/** Where there is no phone: React Native's AsyncStorage by shape, in one file. */
export function fileStore(path: string): AsyncStorageLike {
  const items = new Map<string, string>(read(path));
  async function save(): Promise<void> {
    // Beside it first: a file that is half written would be read as none.
    writeFileSync(`${path}.new`, JSON.stringify([...items]));
    renameSync(`${path}.new`, path);
  }
  return {
    getItem: async (key) => items.get(key) ?? null,
    async setItem(key, value) {
      items.set(key, value);
      await save();
    },
    async removeItem(key) {
      items.delete(key);
      await save();
    },
    getAllKeys: async () => [...items.keys()],
  };
}

function read(path: string): [string, string][] {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as [string, string][];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
