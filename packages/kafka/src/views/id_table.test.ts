import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { BodyCache } from "./artifact_index.ts";
import { IdTable } from "./id_table.ts";

test("behaves like a map through growth, changes and removals", () => {
  const table = new IdTable(8);
  const map = new Map<string, { partition: number; offset: number; version: number; bytes: number }>();
  const ids = Array.from({ length: 3_000 }, (_, i) => (i % 10 ? randomUUID() : `not a uuid ${i}`));
  for (let i = 0; i < 20_000; i++) {
    const id = ids[(i * 7_919) % ids.length]!;
    if (i % 3 === 2) {
      table.delete(id);
      map.delete(id);
    } else {
      const entry = { partition: i % 100, offset: 2 ** 40 + i, version: i, bytes: i * 3 };
      table.set(i % 2 ? id : Buffer.from(id), entry);
      map.set(id, entry);
    }
  }
  expect(table.size).toBe(map.size);
  for (const id of ids) expect(table.get(id)).toEqual(map.get(id));
});

test("does not grow by removals alone", () => {
  const table = new IdTable(16);
  for (let i = 0; i < 10_000; i++) {
    const id = randomUUID();
    table.set(id, { partition: 0, offset: i, version: 1, bytes: 9 });
    table.delete(id);
  }
  expect([table.size, table.bytes]).toEqual([0, 16 * 34]);
});

test("an entry takes 49 to 97 bytes, and a million of them 71 MB, as the documentation says", () => {
  const table = new IdTable();
  let [least, most] = [Number.POSITIVE_INFINITY, 0];
  for (let i = 1; i <= 12_000; i++) {
    const id = `${i.toString(16).padStart(8, "0")}-ac96-774b-bcce-b302099a8057`;
    table.set(id, { partition: i % 8, offset: i, version: 1, bytes: 9 });
    if (i < 700) continue;
    least = Math.min(least, table.bytes / i);
    most = Math.max(most, table.bytes / i);
  }
  expect([Math.round(least), Math.round(most)]).toEqual([49, 97]);
  // It starts with 1,024 slots and doubles when they are full.
  const slots = [20, 21].map((exponent) => 2 ** exponent);
  expect(slots.map((count) => count * (34 / least) >= 1_000_000)).toEqual([false, true]);
  expect(Math.round(new IdTable(slots[1]).bytes / 1_000_000)).toBe(71);
});

test("evicts the least recently used bodies, and keeps the newer version", () => {
  const cache = new BodyCache(3 * 400);
  for (const id of ["a", "b", "c"]) cache.put(id, 1, "x".repeat(100));
  cache.get("a");
  cache.put("d", 2, "y".repeat(100));
  cache.put("d", 1, "old");
  expect(["a", "b", "c", "d"].map((id) => cache.get(id)?.version)).toEqual([1, undefined, 1, 2]);
  cache.put("huge", 1, "z".repeat(10_000));
  expect([cache.get("huge"), cache.bytes]).toEqual([undefined, 1_200]);
  for (const id of ["a", "c", "d"]) cache.delete(id);
  expect(cache.bytes).toBe(0);
});
