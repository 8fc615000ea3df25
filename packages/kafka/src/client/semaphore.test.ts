import { expect, test } from "vitest";
import { Turns } from "./semaphore.ts";

test("so many run at a time, the others in the order of asking, and a failure gives its turn to the next", async () => {
  const turns = new Turns(2);
  const begun: number[] = [];
  const ends = Array.from({ length: 5 }, () => Promise.withResolvers<number>());
  const results = ends.map(({ promise }, i) =>
    turns
      .run(() => {
        begun.push(i);
        return promise;
      })
      .catch((error: Error) => error.message),
  );
  await new Promise(setImmediate);
  expect(begun).toEqual([0, 1]);
  expect(turns.longest).toBeGreaterThan(0);
  ends[1]!.reject(new Error("no"));
  expect(await results[1]).toBe("no");
  await new Promise(setImmediate);
  expect(begun).toEqual([0, 1, 2]);
  for (const [i, { resolve }] of ends.entries()) resolve(i);
  expect(await Promise.all(results)).toEqual([0, "no", 2, 3, 4]);
  expect(begun).toEqual([0, 1, 2, 3, 4]);
  expect(turns.longest).toBe(0);
});
