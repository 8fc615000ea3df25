import { testContext } from "@khala/testing/kit/context";
import { ManualClock } from "@khala/testing/kit/manual_clock";
import { expect, test } from "vitest";
import { Rivals } from "./rivals.ts";

async function opened(): Promise<{ clock: ManualClock; rivals: Rivals }> {
  const clock = new ManualClock();
  return { clock, rivals: new Rivals(await testContext({ clock }), "server-0") };
}

test("an id that others take again and again is left to them for a while, never for good, and the reason is told", async () => {
  const { clock, rivals } = await opened();
  for (let i = 0; i < 3; i++) {
    rivals.refuse();
    rivals.met();
  }
  expect(() => rivals.refuse()).toThrow("transactional id server-0. Give every process its own KAFKA_TX_ID");
  await clock.advance(15_000);
  rivals.refuse();
});

test("who is met now and then is no rival", async () => {
  const { clock, rivals } = await opened();
  for (let i = 0; i < 10; i++) {
    rivals.met();
    rivals.refuse();
    await clock.advance(31_000);
  }
});
