import { segments, type TextStore } from "./segments.ts";
import type { Storage } from "./storage.ts";

/** The part of React Native's AsyncStorage that is used. Functions for many keys are optional. */
export interface AsyncStorageLike {
  getItem(key: string): Promise<string | null>;
  setItem(key: string, value: string): Promise<void>;
  removeItem(key: string): Promise<void>;
  getAllKeys(): Promise<readonly string[]>;
  setMany?(entries: Record<string, string>): Promise<void>;
  removeMany?(keys: string[]): Promise<void>;
  multiSet?(entries: [string, string][]): Promise<void>;
  multiRemove?(keys: string[]): Promise<void>;
}

export interface AsyncStorageOptions {
  /** The prefix of every key. */
  readonly prefix?: string;
  /** Maximum characters of a value: Android cannot read values above two megabytes. */
  readonly valueSize?: number;
}

/** Stores documents in React Native's AsyncStorage. */
export function asyncStorage(impl: AsyncStorageLike, options: AsyncStorageOptions = {}): Storage {
  const texts: TextStore = {
    get: (key) => impl.getItem(key),
    async set(entries) {
      if (impl.setMany && entries.length > 1) return impl.setMany(Object.fromEntries(entries));
      if (impl.multiSet && entries.length > 1)
        return impl.multiSet(entries.map(([key, value]) => [key, value]));
      for (const [key, value] of entries) await impl.setItem(key, value);
    },
    async remove(keys) {
      if (impl.removeMany && keys.length > 1) return impl.removeMany([...keys]);
      if (impl.multiRemove && keys.length > 1) return impl.multiRemove([...keys]);
      for (const key of keys) await impl.removeItem(key);
    },
    keys: () => impl.getAllKeys(),
  };
  return segments(texts, {
    driver: "AsyncStorage",
    prefix: options.prefix ?? "khala:1:",
    writer: "",
    valueSize: options.valueSize ?? 256 << 10,
  });
}
