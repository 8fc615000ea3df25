import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { supervise, TimeoutError } from "./supervise.ts";

function supervised(
  work: (signal: AbortSignal) => Promise<unknown> | unknown,
  { timeoutMs }: { timeoutMs: number | undefined } = { timeoutMs: 1_000 },
) {
  const clock = new ManualClock();
  const outer = new AbortController();
  const seen = { abandoned: 0 };
  const supervision = { clock, timeoutMs, graceMs: 500, onAbandoned: () => seen.abandoned++ };
  const result = (async () => supervise(work, outer.signal, supervision))();
  result.catch(() => undefined);
  return { clock, outer, seen, result };
}

const untilAborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));

test("returns the answer of work in time, and leaves no timer", async () => {
  const { clock, result } = supervised(async () => "done");
  expect(await result).toBe("done");
  expect(clock.pending).toBe(0);
});

test("returns a synchronous answer at once, unless the task was revoked meanwhile", async () => {
  const { clock, result } = supervised(() => "done");
  expect(clock.pending).toBe(0);
  expect(await result).toBe("done");
  const outer = new AbortController();
  const supervision = { clock, timeoutMs: 1, graceMs: 1, onAbandoned() {} };
  const lost = () => supervise(() => outer.abort(new Error("taken away")), outer.signal, supervision);
  expect(lost).toThrow("taken away");
});

test("throws what work throws, at once or later", async () => {
  const error = new Error("no");
  const throws = () => {
    throw error;
  };
  await expect(supervised(throws).result).rejects.toBe(error);
  await expect(supervised(async () => throws()).result).rejects.toBe(error);
});

test("work that ends after its abort has timed out, whatever it returns", async () => {
  const quiet = supervised(untilAborted);
  await quiet.clock.advance(1_000);
  await expect(quiet.result).rejects.toThrow(new TimeoutError("The attempt took longer than 1000 ms."));
  const loud = supervised(async (signal) => {
    await untilAborted(signal);
    throw new Error("aborted");
  });
  await loud.clock.advance(1_000);
  await expect(loud.result).rejects.toBeInstanceOf(TimeoutError);
  expect([quiet.seen.abandoned, loud.seen.abandoned]).toEqual([0, 0]);
  expect(loud.clock.pending).toBe(0);
});

test("abandons work that ignores its signal after the grace period, and ignores its late error", async () => {
  const end = Promise.withResolvers<never>();
  const { clock, result, seen } = supervised(() => end.promise);
  await clock.advance(1_499);
  expect(seen.abandoned).toBe(0);
  await clock.advance(1);
  await expect(result).rejects.toBeInstanceOf(TimeoutError);
  expect(seen.abandoned).toBe(1);
  end.reject(new Error("late"));
  await new Promise(setImmediate);
});

test("passes the caller's signal to the work, also without a timeout", async () => {
  const { outer, result } = supervised(untilAborted, { timeoutMs: undefined });
  outer.abort(new Error("taken away"));
  await expect(result).rejects.toThrow("taken away");
});

test("abandons work that continues after its caller's abort", async () => {
  const { clock, outer, result, seen } = supervised(() => new Promise(() => undefined));
  outer.abort(new Error("taken away"));
  await clock.advance(500);
  await expect(result).rejects.toThrow("taken away");
  expect(seen.abandoned).toBe(1);
});
