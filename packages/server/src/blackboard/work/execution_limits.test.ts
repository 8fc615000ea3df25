import { DRAFT, failing, never, taskWith, testExecutor } from "@khala/test-support/kit/executor";
import fc from "fast-check";
import { expect, test } from "vitest";
import { agent } from "../model/define_agent.ts";
import { RateLimitedError } from "../model/errors.ts";
import { openSlots } from "./slots.ts";

const settled = () => new Promise(setImmediate);

test("aborts an attempt that times out, and retries it", async () => {
  const { consumer, clock, context } = await testExecutor({
    timeout: 1_000,
    run: (_, signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve(undefined))),
  });
  const settlement = consumer.handle(taskWith(), never);
  await settled();
  await clock.advance(1_000);
  expect(await settlement).toMatchObject({
    kind: "retry",
    failure: { class: "TimeoutError", kind: "retryable" },
  });
  expect(await context.telemetry.scrape()).toMatch(/^khala_board_timeouts_total\{agent="reviewer"\} 1/m);
});

test("work that ignores its signal does not hold its slot for ever", async () => {
  const slots = openSlots(1);
  const { consumer, clock, context } = await testExecutor(
    { timeout: 1_000, run: () => new Promise(() => undefined) },
    { slots, graceMs: 500 },
  );
  const settlement = consumer.handle(taskWith(), never);
  await settled();
  expect([slots.free, consumer.running()]).toEqual([0, 1]);
  await clock.advance(1_500);
  expect(await settlement).toMatchObject({ kind: "retry", failure: { class: "TimeoutError" } });
  expect([slots.free, consumer.running()]).toEqual([1, 0]);
  expect(await context.telemetry.scrape()).toMatch(/^khala_board_abandoned_total\{agent="reviewer"\} 1/m);
});

test("agents share the slots of the process by priority", async () => {
  const order: string[] = [];
  const ends: (() => void)[] = [];
  const { open } = await testExecutor({}, { slots: openSlots(1) });
  const consumerOf = (name: string, priority: number) =>
    open(
      agent(name, {
        consumes: "Draft",
        priority,
        run: () =>
          new Promise<undefined>((resolve) => {
            order.push(name);
            ends.push(() => resolve(undefined));
          }),
      }),
    );
  const [low, high] = [consumerOf("low", 0), consumerOf("high", 1)];
  const all = [low, low, high].map((consumer) => consumer.handle(taskWith({ agent: consumer.agent }), never));
  for (let turn = 0; turn < 3; turn++) {
    await settled();
    expect(order).toHaveLength(turn + 1);
    ends[turn]?.();
  }
  await Promise.all(all);
  expect(order).toEqual(["low", "high", "low"]);
});

test("a task that waits for a slot has not begun", async () => {
  const slots = openSlots(1);
  const release = await slots.take(0, never);
  const { consumer } = await testExecutor({ run() {} }, { slots });
  const task = taskWith();
  const settlement = consumer.handle(task, never);
  expect(consumer.begun?.(task)).toBe(false);
  release?.();
  expect(await settlement).toMatchObject({ kind: "done" });
  expect(consumer.begun?.(task)).toBe(true);
});

test("starts stay within the rate, and a task that waits for it holds no slot", async () => {
  const slots = openSlots(1);
  const starts: number[] = [];
  const run = async () => {
    starts.push(clock.now() - begin);
  };
  const { consumer, clock } = await testExecutor({ rate: { limit: 2, per: 1_000 }, run }, { slots });
  const begin = clock.now();
  const all = Array.from({ length: 5 }, () => consumer.handle(taskWith(), never));
  await settled();
  expect([starts, slots.free]).toEqual([[0, 0], 1]);
  await clock.advance(2_000);
  await Promise.all(all);
  expect(starts).toEqual([0, 0, 1_000, 1_000, 2_000]);
});

test("the gate is closed while the rate is used up", async () => {
  const { consumer, clock } = await testExecutor({
    rate: { limit: 1, per: 1_000 },
    run: async () => undefined,
  });
  await consumer.gate(never);
  await consumer.handle(taskWith(), never);
  let through = false;
  const gate = consumer.gate(never).then(() => {
    through = true;
  });
  await clock.advance(999);
  expect(through).toBe(false);
  await clock.advance(1);
  await gate;
});

test("postpones the tasks of an org whose tasks keep failing, tries one, and runs the others' tasks", async () => {
  let healthy = false;
  let runs = 0;
  const { consumer, clock } = await testExecutor(
    {
      run: async ({ artifact }) => {
        runs++;
        if (!healthy && artifact.org_id === DRAFT.org_id) throw new Error("down");
      },
    },
    { breaker: { failures: 2, base: 1_000, cap: 1_000 } },
  );
  const other = taskWith({ artifacts: [{ ...DRAFT, org_id: "org-2" }] });
  await consumer.handle(taskWith(), never);
  await consumer.handle(taskWith(), never);
  expect([consumer.breakers.state(DRAFT.org_id), consumer.breakers.state("org-2"), runs]).toEqual([
    "open",
    "closed",
    2,
  ]);
  const later = { kind: "retry", uncounted: true, failure: { class: "BreakerOpen", kind: "rate_limited" } };
  expect(await consumer.handle(taskWith({ attempt: 5 }), never)).toMatchObject(later);
  expect(await consumer.handle(other, never)).toMatchObject({ kind: "done" });
  expect(runs).toBe(3);
  await consumer.gate(never);
  await consumer.handle(taskWith(), never);
  let through = false;
  const gate = consumer.gate(never).then(() => {
    through = true;
  });
  await settled();
  expect(through).toBe(false);
  healthy = true;
  await clock.advance(1_000);
  await gate;
  expect(await consumer.handle(taskWith(), never)).toMatchObject({ kind: "done" });
  expect(consumer.breakers.state()).toBe("closed");
});

test("rate limits never open the breaker", async () => {
  const { consumer } = await testExecutor(failing(new RateLimitedError("x", 5)), {
    breaker: { failures: 1 },
  });
  for (let time = 0; time < 5; time++) await consumer.handle(taskWith(), never);
  expect(consumer.breakers.state()).toBe("closed");
});

test("a task revoked while it waits does not start, and leaves nothing behind", async () => {
  const slots = openSlots(1);
  const release = await slots.take(0, never);
  const { consumer } = await testExecutor({ run: async () => expect.unreachable() }, { slots });
  const stop = new AbortController();
  const settlement = consumer.handle(taskWith(), stop.signal);
  stop.abort();
  expect(await settlement).toMatchObject({ kind: "retry", delayMs: 0, failure: { class: "NotStarted" } });
  release?.();
  expect([slots.free, slots.waiting]).toEqual([1, 0]);
});

test("a task revoked while it runs does not count for the breaker", async () => {
  const { consumer } = await testExecutor(
    {
      run: (_, signal) =>
        new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    },
    { breaker: { failures: 1 } },
  );
  const stop = new AbortController();
  const settlement = consumer.handle(taskWith(), stop.signal);
  await settled();
  stop.abort();
  await settlement;
  expect(consumer.breakers.state()).toBe("closed");
});

test("remote work takes no slot, and has its own timeout", async () => {
  const slots = openSlots(1);
  const release = await slots.take(0, never);
  const end = Promise.withResolvers<{ type: string; payload: number }>();
  const { consumer, clock } = await testExecutor({ timeout: 1_000 }, { slots, remote: () => end.promise });
  const settlement = consumer.handle(taskWith(), never);
  await settled();
  await clock.advance(60_000);
  end.resolve({ type: "Review", payload: 1 });
  expect(await settlement).toMatchObject({ kind: "done", outputs: [{ type: "Review" }] });
  release?.();
});

test("never rejects, whatever an agent returns or throws, and frees every slot", async () => {
  const value = fc.anything({ withNullPrototype: true, withBigInt: true, withDate: true });
  await fc.assert(
    fc.asyncProperty(value, fc.boolean(), async (result, throws) => {
      const slots = openSlots(1);
      const run = async () => {
        if (throws) throw result;
        return result;
      };
      const { consumer } = await testExecutor({ run: run as never }, { slots });
      const { kind } = await consumer.handle(taskWith(), never);
      expect(["done", "retry", "dead"]).toContain(kind);
      expect(slots.free).toBe(1);
    }),
    { numRuns: 50 },
  );
});
