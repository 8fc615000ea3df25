import { expect, test } from "vitest";
import { OldestKeys } from "./oldest_keys.ts";

test("returns keys in the order in which they were set", () => {
  const map = new Map<string, number>();
  const oldest = new OldestKeys(map);
  const take = () => {
    const key = oldest.next();
    if (key !== undefined) map.delete(key);
    return key;
  };
  expect(take()).toBeUndefined();
  for (const key of ["a", "b", "c", "d"]) map.set(key, 1);
  expect(take()).toBe("a");
  map.delete("b");
  map.set("b", 2);
  map.delete("c");
  expect(take()).toBe("d");
  map.set("a", 2);
  expect([take(), take(), take()]).toEqual(["b", "a", undefined]);
  // It had come to the end.
  map.set("e", 1);
  expect([take(), take()]).toEqual(["e", undefined]);
});

test("finds the oldest key after any number of replacements", () => {
  const set = new Set<number>();
  const oldest = new OldestKeys(set);
  const taken: number[] = [];
  for (let i = 0; i < 10_000; i++) {
    set.add(i);
    if (set.size <= 300) continue;
    const next = oldest.next()!;
    set.delete(next);
    taken.push(next);
  }
  expect(taken).toEqual(Array.from({ length: 9_700 }, (_, i) => i));
});
