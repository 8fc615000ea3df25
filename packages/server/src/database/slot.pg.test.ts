import { expect, test } from "vitest";
import { testContext } from "../../../../e2e/support/context.ts";
import { testDatabase } from "../../../../e2e/support/postgres.ts";
import { takeSlot } from "./slot.ts";

test("processes that start at once have different numbers, the lowest ones, and a number that was given back is taken again", async () => {
  await using store = await testDatabase();
  const context = await testContext();
  const take = () => takeSlot(store.database, context, "things", 10_000);
  const slots = await Promise.all([take(), take(), take(), take()]);
  expect(slots.map(({ number }) => number).sort()).toEqual([0, 1, 2, 3]);
  const given = slots.find(({ number }) => number === 1)!;
  await given.stop();
  const again = await take();
  expect(again.number).toBe(1);
  expect(again.held()).toBe(true);
  for (const slot of [...slots, again]) await slot.stop();
});
