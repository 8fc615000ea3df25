import { KhalaError } from "@khala/contracts";
import { segments, type TextStore } from "./segments.ts";
import type { Storage } from "./storage.ts";

/** The part of the browser's `Storage` that is used. */
export interface LocalStorageLike {
  readonly length: number;
  key(index: number): string | null;
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

export interface LocalStorageOptions {
  /** The prefix of every key. */
  readonly prefix?: string;
  /** Default: the browser's. */
  readonly store?: LocalStorageLike;
  /** Distinguishes tabs that write to the same store. */
  readonly writer?: string;
}

/**
 * Stores documents in the browser's localStorage: a few thousand small ones, because the quota is about five million
 * characters. Tabs that write at the same time may overwrite each other, but never mix their data.
 */
export function localStorage(options: LocalStorageOptions = {}): Storage {
  let found = options.store;
  // Looked up on use: server-side rendering must not fail, and some browsers throw on access.
  const store = () => (found ??= browserStore());
  const texts: TextStore = {
    get: async (key) => store().getItem(key),
    async set(entries) {
      for (const [key, value] of entries) store().setItem(key, value);
    },
    async remove(keys) {
      for (const key of keys) store().removeItem(key);
    },
    async keys() {
      const from = store();
      return Array.from({ length: from.length }, (_, i) => from.key(i)).filter((key) => key !== null);
    },
  };
  return segments(texts, {
    driver: "localStorage",
    prefix: options.prefix ?? "khala:1:",
    writer: `${options.writer ?? someName()}-`,
    valueSize: 1 << 20,
  });
}

function browserStore(): LocalStorageLike {
  const { localStorage: found } = globalThis as { localStorage?: LocalStorageLike };
  if (found) return found;
  throw new KhalaError(
    "unavailable",
    "This platform has no localStorage. Use another storage, such as memory().",
  );
}

function someName(): string {
  return [...crypto.getRandomValues(new Uint32Array(2))].map((number) => number.toString(36)).join("");
}
