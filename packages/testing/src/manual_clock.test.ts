import { sleep } from "@khala/server/blackboard";
import { expect, test } from "vitest";
import { ManualClock } from "./manual_clock.ts";

test("fires timers in the order of their time, each at its own moment", async () => {
  const clock = new ManualClock(0);
  const fired: string[] = [];
  for (const ms of [30, 10, 20, 99]) clock.after(ms, () => fired.push(`${ms} at ${clock.now()}`));
  await clock.advance(50);
  expect(fired).toEqual(["10 at 10", "20 at 20", "30 at 30"]);
  expect(clock.now()).toBe(50);
  expect(clock.pending).toBe(1);
});

test("one advance runs work that sleeps repeatedly", async () => {
  const clock = new ManualClock(0);
  const woke: number[] = [];
  const worker = (async () => {
    while (woke.length < 3) {
      await sleep(clock, 10);
      woke.push(clock.now());
    }
  })();
  await clock.advance(100);
  await worker;
  expect(woke).toEqual([10, 20, 30]);
});

test("never fires a cancelled timer", async () => {
  const clock = new ManualClock();
  const cancel = clock.after(10, () => expect.fail("it fired"));
  cancel();
  await clock.advance(20);
  expect(clock.pending).toBe(0);
});
