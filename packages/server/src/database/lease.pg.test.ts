import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { keepSlot, takeSlot } from "./lease.ts";

test("gives processes that start at once the lowest numbers, and reuses a released one", async () => {
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

test("replaces a slot that another process has acquired, once for all callers", async () => {
  await using store = await testDatabase();
  const context = await testContext();
  const slot = await keepSlot(store.database, context, "things", 2_000);
  expect(await Promise.all([slot.number(), slot.number()])).toEqual([0, 0]);
  // As if it had been paused until its lease expired and another process acquired it.
  await store.database.query({
    text: `UPDATE runtime.leases SET holder = $1, expires_at = now() + interval '1 hour' WHERE name = 'things 0'`,
    values: [context.newId()],
  });
  const numbers = await eventually("it has another number", async () => {
    const found = await Promise.all([slot.number(), slot.number()]);
    return found[0] === 0 ? undefined : found;
  });
  expect(numbers).toEqual([1, 1]);
  await slot.stop();
  const next = await takeSlot(store.database, context, "things", 2_000);
  expect(next.number).toBe(1);
  await next.stop();
});

test("passes the number of a dead process on when its lease has expired, not before", async () => {
  await using store = await testDatabase();
  const { database } = store;
  const ttlMs = 60_000;
  // A process with a stopped clock does not renew.
  const clock = new ManualClock();
  const dead = await takeSlot(database, await testContext({ clock }), "things", ttlMs);
  const context = await testContext();
  const take = () => takeSlot(database, context, "things", ttlMs);
  const beside = await take();
  expect([dead.number, beside.number]).toEqual([0, 1]);
  await database.query({
    text: "UPDATE runtime.leases SET expires_at = now() - interval '1 second' WHERE name = $1",
    values: ["things 0"],
  });
  const next = await take();
  expect(next.number).toBe(0);
  expect([next, beside].map((slot) => slot.held())).toEqual([true, true]);
  await clock.advance(ttlMs);
  expect(dead.held()).toBe(false);
  // Stopping must not release the lease of another process.
  await dead.stop();
  const last = await take();
  expect(last.number).toBe(2);
  for (const slot of [beside, next, last]) await slot.stop();
});
