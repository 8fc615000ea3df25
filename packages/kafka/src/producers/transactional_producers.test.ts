import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { TransactionalId } from "./transactional_producers.ts";

async function opened(): Promise<{ clock: ManualClock; id: TransactionalId }> {
  const clock = new ManualClock();
  return { clock, id: new TransactionalId(await testContext({ clock }), "server-0") };
}

test("refuses an id for a while after it is fenced repeatedly, with the reason", async () => {
  const { clock, id } = await opened();
  for (let i = 0; i < 3; i++) {
    id.refuseWhileContested();
    id.fenced();
  }
  expect(() => id.refuseWhileContested()).toThrow(
    "transactional id server-0. Give every process its own KAFKA_TX_ID",
  );
  await clock.advance(15_000);
  id.refuseWhileContested();
});

test("does not refuse an id that is fenced rarely", async () => {
  const { clock, id } = await opened();
  for (let i = 0; i < 10; i++) {
    id.fenced();
    id.refuseWhileContested();
    await clock.advance(31_000);
  }
});
