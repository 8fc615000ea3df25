import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { describe, expect, test } from "vitest";
import { runLoop, Wake } from "./service.ts";

/** A loop on a clock that the test moves, which notes when it stepped. */
async function loopOf(step: (turn: number) => Promise<boolean> | boolean, idleMs = 1_000) {
  const clock = new ManualClock(0);
  const context = await testContext({ clock });
  const wake = new Wake();
  const steps: number[] = [];
  const errors: unknown[] = [];
  const loop = runLoop(context, "test", {
    wake,
    idleMs,
    async step() {
      steps.push(clock.now());
      return step(steps.length);
    },
    onError: (error) => errors.push(error),
  });
  await new Promise(setImmediate);
  return { clock, wake, steps, errors, loop };
}

describe("a loop", () => {
  test("steps at once while there is more, then waits for idleMs", async () => {
    const { clock, steps, loop } = await loopOf((turn) => turn < 3);
    expect(steps).toEqual([0, 0, 0]);
    await clock.advance(2_500);
    expect(steps).toEqual([0, 0, 0, 1_000, 2_000]);
    await loop.stop();
  });

  test("steps when woken, once for coinciding wakes", async () => {
    const { wake, steps, loop } = await loopOf(() => false);
    wake.wake();
    wake.wake();
    await new Promise(setImmediate);
    expect(steps).toHaveLength(2);
    await loop.stop();
  });

  test("does not lose a wake that arrives during a step", async () => {
    let finish = (_more: boolean) => {};
    const { wake, steps, loop } = await loopOf((turn) =>
      turn === 1 ? new Promise<boolean>((resolve) => (finish = resolve)) : false,
    );
    wake.wake();
    finish(false);
    await new Promise(setImmediate);
    expect(steps).toHaveLength(2);
    await loop.stop();
  });

  test("retries a failed step with backoff", async () => {
    const { clock, steps, errors, loop } = await loopOf((turn) => {
      if (turn < 6) throw new Error(`step ${turn}`);
      return false;
    });
    expect(steps).toHaveLength(1);
    await clock.advance(10_000);
    expect(errors.map((error) => (error as Error).message)).toEqual([
      "step 1",
      "step 2",
      "step 3",
      "step 4",
      "step 5",
    ]);
    expect(steps.length).toBeGreaterThan(6);
    for (let i = 1; i < 6; i++) expect(steps[i]! - steps[i - 1]!).toBeGreaterThanOrEqual(25);
    await loop.stop();
  });

  test("stops after its current step and leaves no timer", async () => {
    let finish = (_more: boolean) => {};
    const { clock, steps, loop } = await loopOf(() => new Promise<boolean>((resolve) => (finish = resolve)));
    let stopped = false;
    const stopping = loop.stop().then(() => {
      stopped = true;
    });
    await new Promise(setImmediate);
    expect(stopped).toBe(false);
    finish(true);
    await stopping;
    expect(steps).toHaveLength(1);
    expect(clock.pending).toBe(0);
  });

  test("stops at once while it waits", async () => {
    const { clock, loop } = await loopOf(() => false);
    await loop.stop();
    expect(clock.pending).toBe(0);
  });
});
