import { getEventListeners } from "node:events";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, onTestFinished, test, vi } from "vitest";
import { isoTime, keepAliveClock, sleep, systemClock } from "./clock.ts";

test("formats a time as RFC 3339, cached or not", () => {
  const times = [0, 0, 1_700_000_000_123, 0];
  expect(times.map(isoTime)).toEqual(times.map((ms) => new Date(ms).toISOString()));
});

test("a sleep ends after its time", async () => {
  const clock = new ManualClock();
  let awake = false;
  void sleep(clock, 100).then(() => {
    awake = true;
  });
  await clock.advance(99);
  expect(awake).toBe(false);
  await clock.advance(1);
  expect(awake).toBe(true);
});

test("an aborted sleep ends at once and leaves no timer", async () => {
  const clock = new ManualClock();
  const abort = new AbortController();
  const asleep = sleep(clock, 100, abort.signal);
  expect(clock.pending).toBe(1);
  abort.abort();
  await asleep;
  expect(clock.pending).toBe(0);
  await sleep(clock, 100, abort.signal);
  expect(clock.pending).toBe(0);
});

test("a sleep that ended removes its abort listener", async () => {
  const clock = new ManualClock();
  const { signal } = new AbortController();
  const asleep = sleep(clock, 10, signal);
  expect(getEventListeners(signal, "abort")).toHaveLength(1);
  await clock.advance(10);
  await asleep;
  expect(getEventListeners(signal, "abort")).toHaveLength(0);
});

test("a timer of the system clock fires unless it is cancelled", async () => {
  const fired: string[] = [];
  await new Promise<void>((resolve) => {
    const cancel = systemClock.after(0, () => fired.push("cancelled"));
    cancel();
    systemClock.after(1, () => {
      fired.push("kept");
      resolve();
    });
    // The clock's own timers do not keep a process alive.
    setTimeout(() => {}, 50);
  });
  expect(fired).toEqual(["kept"]);
});

test.for([["system clock", systemClock] as const, ["keep-alive clock", keepAliveClock] as const])(
  "a timer of the %s may take months",
  ([, clock]) => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const day = 86_400_000;
    const fired: string[] = [];
    clock.after(60 * day, () => fired.push("kept"));
    const cancel = clock.after(60 * day, () => fired.push("cancelled"));
    vi.advanceTimersByTime(60 * day - 1);
    expect(fired).toEqual([]);
    cancel();
    vi.advanceTimersByTime(1);
    expect(fired).toEqual(["kept"]);
    expect(vi.getTimerCount()).toBe(0);
  },
);
