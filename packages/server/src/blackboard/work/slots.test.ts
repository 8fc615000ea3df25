import fc from "fast-check";
import { expect, test } from "vitest";
import { openSlots } from "./slots.ts";

const never = new AbortController().signal;
const settled = () => new Promise(setImmediate);

test("never gives out more slots than there are", async () => {
  const slots = openSlots(2);
  const first = await slots.take(0, never);
  await slots.take(0, never);
  let third = false;
  const waiting = slots.take(0, never).then(() => {
    third = true;
  });
  await settled();
  expect([slots.free, slots.waiting, third]).toEqual([0, 1, false]);
  first?.();
  await waiting;
  expect([slots.free, slots.waiting]).toEqual([0, 0]);
});

test("takeFree takes a free slot, and never that of a waiting caller", async () => {
  const slots = openSlots(1);
  const release = slots.takeFree();
  expect(slots.takeFree()).toBeUndefined();
  const waiting = slots.take(0, never);
  release?.();
  expect(slots.takeFree()).toBeUndefined();
  (await waiting)?.();
  expect(slots.free).toBe(1);
});

test("a slot released twice counts once", async () => {
  const slots = openSlots(1);
  const release = await slots.take(0, never);
  release?.();
  release?.();
  expect(slots.free).toBe(1);
});

test("higher priorities get a slot first, then earlier callers", async () => {
  const slots = openSlots(1);
  const release = await slots.take(0, never);
  const order: string[] = [];
  const enter = async (name: string, priority: number) => {
    const leave = await slots.take(priority, never);
    order.push(name);
    leave?.();
  };
  const all = [
    enter("low 1", 0),
    enter("high 1", 5),
    enter("low 2", 0),
    enter("lowest", -1),
    enter("high 2", 5),
  ];
  release?.();
  await Promise.all(all);
  expect(order).toEqual(["high 1", "high 2", "low 1", "low 2", "lowest"]);
});

test("a caller that stops waiting takes no slot", async () => {
  const slots = openSlots(1);
  const release = await slots.take(0, never);
  const stop = new AbortController();
  const waiting = slots.take(9, stop.signal);
  stop.abort();
  expect(await waiting).toBeUndefined();
  expect(slots.waiting).toBe(0);
  release?.();
  expect(slots.free).toBe(1);
  expect(await slots.take(0, stop.signal)).toBeUndefined();
});

test("all slots are free at the end of any sequence of calls and aborts", async () => {
  const step = fc.record({
    priority: fc.integer({ min: 0, max: 3 }),
    aborts: fc.boolean(),
    ticks: fc.nat(3),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 3 }),
      fc.array(step, { maxLength: 20 }),
      async (count, steps) => {
        const slots = openSlots(count);
        let inside = 0;
        const users = steps.map(async ({ priority, aborts, ticks }) => {
          const stop = new AbortController();
          const taking = slots.take(priority, stop.signal);
          if (aborts) stop.abort();
          const release = await taking;
          if (!release) return;
          expect(++inside).toBeLessThanOrEqual(count);
          for (let tick = 0; tick < ticks; tick++) await settled();
          inside--;
          release();
        });
        await Promise.all(users);
        expect([slots.free, slots.waiting]).toEqual([count, 0]);
      },
    ),
    { numRuns: 50 },
  );
});
