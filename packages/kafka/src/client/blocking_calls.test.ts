import { expect, test } from "vitest";
import { blockingCall, endlessCall, Semaphore } from "./blocking_calls.ts";

const tick = () => new Promise(setImmediate);

test("does not make a call that is abandoned before a thread is free", async () => {
  const busy = Promise.withResolvers<void>();
  const others = [1, 2, 3].map(() => blockingCall(() => busy.promise));
  const late = Promise.withResolvers<never>();
  let made = 0;
  const call = endlessCall(async () => void made++, late.promise);
  late.reject(new Error("too late"));
  await expect(call).rejects.toThrow("too late");
  busy.resolve();
  await Promise.all(others);
  await tick();
  expect(made).toBe(0);
  await endlessCall(async () => void made++, new Promise(() => {}));
  expect(made).toBe(1);
});

test("an abandoned call keeps its thread until it ends", async () => {
  const begun = Promise.withResolvers<void>();
  const late = Promise.withResolvers<never>();
  const call = endlessCall(() => begun.promise, late.promise);
  await tick();
  late.reject(new Error("too late"));
  await expect(call).rejects.toThrow("too late");
  const busy = Promise.withResolvers<void>();
  let running = 0;
  const others = [1, 2, 3].map(() =>
    blockingCall(() => {
      running++;
      return busy.promise;
    }),
  );
  await tick();
  expect(running).toBe(2);
  begun.resolve();
  await tick();
  expect(running).toBe(3);
  busy.resolve();
  await Promise.all(others);
});

test("a semaphore limits concurrency, serves callers in order, and frees the slot of a failure", async () => {
  const semaphore = new Semaphore(2);
  const begun: number[] = [];
  const ends = Array.from({ length: 5 }, () => Promise.withResolvers<number>());
  const results = ends.map(({ promise }, i) =>
    semaphore
      .run(() => {
        begun.push(i);
        return promise;
      })
      .catch((error: Error) => error.message),
  );
  await new Promise(setImmediate);
  expect(begun).toEqual([0, 1]);
  expect(semaphore.longest).toBeGreaterThan(0);
  ends[1]!.reject(new Error("no"));
  expect(await results[1]).toBe("no");
  await new Promise(setImmediate);
  expect(begun).toEqual([0, 1, 2]);
  for (const [i, { resolve }] of ends.entries()) resolve(i);
  expect(await Promise.all(results)).toEqual([0, "no", 2, 3, 4]);
  expect(begun).toEqual([0, 1, 2, 3, 4]);
  expect(semaphore.longest).toBe(0);
});
