import { expect, test } from "vitest";
import { SingleFlight } from "../views/single_flight.ts";
import { Pool } from "./producer_pool.ts";

test("makes slots on demand, serves waiting callers in order, and replaces broken slots", async () => {
  const made: number[] = [];
  const slots = new Pool(2, async (slot) => {
    made.push(slot);
    return { slot };
  });
  const one = await slots.take();
  one.release(true);
  const again = await slots.take();
  expect([again.value, made]).toEqual([one.value, [0]]);
  const two = await slots.take();
  const order: string[] = [];
  const waiting = ["first", "second"].map(async (name) => {
    const lease = await slots.take();
    order.push(name);
    lease.release(true);
    return lease.value;
  });
  again.release(false);
  const [fresh] = await Promise.all(waiting);
  expect(order).toEqual(["first", "second"]);
  expect(fresh).not.toBe(again.value);
  expect(made).toEqual([0, 1, 0]);
  two.release(true);
  expect(await slots.drain()).toHaveLength(2);
  await expect(slots.take()).rejects.toMatchObject({ code: "shutting_down" });
});

test("retries a slot that could not be made at the next call", async () => {
  let fails = true;
  const slots = new Pool(1, async () => {
    if (fails) throw new Error("not now");
    return "made";
  });
  await expect(slots.take()).rejects.toThrow("not now");
  fails = false;
  expect((await slots.take()).value).toBe("made");
});

test("closing rejects waiting callers, and draining waits for running ones", async () => {
  const slots = new Pool(1, async () => "it");
  const lease = await slots.take();
  const waiting = slots.take();
  const drained = slots.drain();
  await expect(waiting).rejects.toMatchObject({ code: "shutting_down" });
  lease.release(true);
  expect(await drained).toEqual(["it"]);
});

test("calls during a run share the next run", async () => {
  const gates: (() => void)[] = [];
  let runs = 0;
  const shared = new SingleFlight(async () => {
    const run = ++runs;
    await new Promise<void>((resolve) => gates.push(resolve));
    return run;
  });
  const first = shared.run();
  const later = [shared.run(), shared.run()];
  gates[0]!();
  expect(await first).toBe(1);
  while (gates.length < 2) await Promise.resolve();
  gates[1]!();
  expect(await Promise.all(later)).toEqual([2, 2]);
});
