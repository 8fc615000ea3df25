import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { openSetAside } from "../observe/set_aside.ts";
import { startSweep } from "./sweep.ts";

interface TestRow {
  readonly id: number;
  due: number;
}

/** A sweep over rows, some of which fail with an error without a cause. */
async function sweepOf(count: number, isBad: (id: number) => boolean) {
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const setAside = openSetAside(context);
  const rows = new Map(Array.from({ length: count }, (_, id) => [id, { id, due: clock.now() }]));
  const sent: number[] = [];
  const due = {
    async claim(now: Date, until: Date, limit: number) {
      const ready = [...rows.values()].filter((row) => row.due <= now.getTime()).slice(0, limit);
      for (const row of ready) row.due = until.getTime();
      return ready;
    },
    async send(some: readonly TestRow[]) {
      if (some.some(({ id }) => isBad(id))) throw new Error("no");
      sent.push(...some.map(({ id }) => id));
    },
    async finish(some: readonly TestRow[]) {
      for (const { id } of some) rows.delete(id);
    },
    async refuse({ id }: TestRow) {
      rows.delete(id);
    },
    async release(some: readonly TestRow[], at: Date) {
      for (const row of some) row.due = at.getTime();
    },
    next: async () => new Date(Math.min(...[...rows.values()].map((row) => row.due))),
    describe: ({ id }: TestRow) => ({ id }),
    orgOf: () => "acme",
  };
  const sweep = startSweep(context, "test", due, { pollMs: 1_000, batch: 10, setAside });
  return {
    clock,
    setAside,
    sent,
    rows,
    async tick(ms: number) {
      await clock.advance(ms);
      for (let i = 0; i < 200; i++) await new Promise(setImmediate);
    },
    [Symbol.asyncDispose]: () => sweep.stop(),
  };
}

test("sets aside any number of failing rows, and sends the others", async () => {
  let broken = true;
  await using sweep = await sweepOf(60, (id) => broken && id < 50);
  for (let i = 0; i < 60; i++) await sweep.tick(1_000);
  expect(sweep.sent.toSorted()).toEqual([50, 51, 52, 53, 54, 55, 56, 57, 58, 59]);
  expect(sweep.setAside.problems()).toEqual(["test: 50 set aside"]);
  broken = false;
  for (let i = 0; i < 70; i++) await sweep.tick(1_000);
  expect(sweep.rows.size).toBe(0);
  expect(sweep.setAside.problems()).toEqual([]);
});
