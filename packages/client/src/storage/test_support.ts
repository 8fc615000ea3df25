import { hash, randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DatabaseSync, SQLInputValue } from "node:sqlite";
import type { AsyncStorageLike } from "./async_storage.ts";
import type { LocalStorageLike } from "./local_storage.ts";
import type { SqliteAsync, SqliteSync } from "./sqlite.ts";

/** Makes a store fail at a chosen step, before the step is taken or after it. */
export class Faults {
  #left = Number.POSITIVE_INFINITY;
  #after = false;
  #hit = false;

  /** A step of the store. */
  step<T>(take: () => T): T {
    if (this.#left-- !== 0) return take();
    this.#hit = true;
    if (this.#after) take();
    throw Object.assign(new Error("The quota has been exceeded."), { name: "QuotaExceededError" });
  }

  /** Runs the work with the n-th step failing; even numbers fail before the step, odd ones after it. */
  async failing(n: number, work: () => Promise<void>): Promise<boolean> {
    this.#left = n >> 1;
    this.#after = n % 2 === 1;
    this.#hit = false;
    try {
      await work();
      return this.#hit;
    } finally {
      this.#left = Number.POSITIVE_INFINITY;
    }
  }
}

/** A localStorage without a browser. Only writing steps fail. */
export class FakeLocalStorage implements LocalStorageLike {
  readonly entries = new Map<string, string>();
  readonly faults = new Faults();
  /** Characters of all keys and values. */
  quota = 5 << 20;

  get length() {
    return this.entries.size;
  }
  key(index: number) {
    return [...this.entries.keys()][index] ?? null;
  }
  getItem(key: string) {
    return this.entries.get(key) ?? null;
  }
  setItem(key: string, value: string) {
    this.faults.step(() => {
      const used = [...this.entries].reduce((sum, [k, v]) => sum + (k === key ? 0 : k.length + v.length), 0);
      if (used + key.length + value.length > this.quota)
        throw Object.assign(new Error("The quota has been exceeded."), { name: "QuotaExceededError" });
      this.entries.set(key, value);
    });
  }
  removeItem(key: string) {
    this.faults.step(() => this.entries.delete(key));
  }
}

/** AsyncStorage with each value in a file, which is replaced in one step, as the real one does in a database. */
export class FileAsyncStorage implements AsyncStorageLike {
  readonly faults = new Faults();
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
    mkdirSync(folder, { recursive: true });
  }

  async getItem(key: string) {
    return existsSync(this.#file(key)) ? read(this.#file(key))[1] : null;
  }
  async setItem(key: string, value: string) {
    this.faults.step(() => {
      const temporary = join(this.#folder, `${randomUUID()}.tmp`);
      writeFileSync(temporary, JSON.stringify([key, value]));
      renameSync(temporary, this.#file(key));
    });
  }
  async removeItem(key: string) {
    this.faults.step(() => rmSync(this.#file(key), { force: true }));
  }
  async getAllKeys() {
    const names = readdirSync(this.#folder).filter((name) => name.endsWith(".json"));
    return names.map((name) => read(join(this.#folder, name))[0]);
  }
  /** Not one step, as it is not promised to be. */
  async multiSet(entries: [string, string][]) {
    for (const [key, value] of entries) await this.setItem(key, value);
  }
  async multiRemove(keys: string[]) {
    for (const key of keys) await this.removeItem(key);
  }

  #file(key: string): string {
    return join(this.#folder, `${hash("sha256", key)}.json`);
  }
}

function read(file: string): [key: string, value: string] {
  return JSON.parse(readFileSync(file, "utf8"));
}

/** node:sqlite as it is, with steps that can be made to fail. */
export function faultySync(database: DatabaseSync, faults: Faults): SqliteSync {
  return {
    exec: (sql) => (sql === "COMMIT" ? faults.step(() => database.exec(sql)) : database.exec(sql)),
    prepare(sql) {
      const statement = database.prepare(sql);
      return {
        run: (...values: SQLInputValue[]) => faults.step(() => statement.run(...values)),
        all: (...values: SQLInputValue[]) => statement.all(...values),
      };
    },
  };
}

/** expo-sqlite's shape and behaviour on node:sqlite. */
export function expoShape(database: DatabaseSync, faults: Faults): SqliteAsync {
  return {
    async execAsync(sql) {
      database.exec(sql);
    },
    async runAsync(sql, values) {
      return faults.step(() => database.prepare(sql).run(...values));
    },
    async getAllAsync(sql, values) {
      return database.prepare(sql).all(...values);
    },
    async withTransactionAsync(task) {
      database.exec("BEGIN");
      try {
        await task();
        faults.step(() => {});
        database.exec("COMMIT");
      } catch (error) {
        database.exec("ROLLBACK");
        throw error;
      }
    },
  };
}
