import { expect, test } from "vitest";
import { waiting, waitingWithoutEnd } from "./native_waits.ts";

const turn = () => new Promise(setImmediate);

test("a call that was given up before it had its turn is never made", async () => {
  const busy = Promise.withResolvers<void>();
  const others = [1, 2, 3].map(() => waiting(() => busy.promise));
  const late = Promise.withResolvers<never>();
  let made = 0;
  const call = waitingWithoutEnd(async () => void made++, late.promise);
  late.reject(new Error("too late"));
  await expect(call).rejects.toThrow("too late");
  busy.resolve();
  await Promise.all(others);
  await turn();
  expect(made).toBe(0);
  await waitingWithoutEnd(async () => void made++, new Promise(() => {}));
  expect(made).toBe(1);
});

test("one that has begun goes on when it is given up, and keeps its turn", async () => {
  const begun = Promise.withResolvers<void>();
  const late = Promise.withResolvers<never>();
  const call = waitingWithoutEnd(() => begun.promise, late.promise);
  await turn();
  late.reject(new Error("too late"));
  await expect(call).rejects.toThrow("too late");
  const busy = Promise.withResolvers<void>();
  let running = 0;
  const others = [1, 2, 3].map(() =>
    waiting(() => {
      running++;
      return busy.promise;
    }),
  );
  await turn();
  expect(running).toBe(2);
  begun.resolve();
  await turn();
  expect(running).toBe(3);
  busy.resolve();
  await Promise.all(others);
});
