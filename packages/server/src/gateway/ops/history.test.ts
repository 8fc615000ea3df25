import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { type HistoryOptions, openHistory } from "./history.ts";

async function opened() {
  const clock = new ManualClock();
  const traffic = { messages: 0, bytes: 0, errors: 0 };
  const lastPoll = () => ({ heads: undefined, at: 0 });
  const sync = { hub: { lastPoll } } as unknown as HistoryOptions["sync"];
  const context = await testContext({ clock });
  const history = openHistory(context, { sync, traffic: () => ({ ...traffic }) });
  return { clock, traffic, history };
}

test("takes a sample every ten seconds, also without viewers", async () => {
  const { clock, traffic, history } = await opened();
  expect(history.read().samples).toEqual([]);
  traffic.messages = 50;
  await clock.advance(10_000);
  traffic.errors = 20;
  await clock.advance(10_000);
  expect(history.read()).toMatchObject({
    interval_s: 10,
    samples: [
      { messages_per_s: 5, errors_per_s: 0 },
      { messages_per_s: 0, errors_per_s: 2 },
    ],
  });
  await history.stop();
});

test("keeps an hour, and no more", async () => {
  const { clock, history } = await opened();
  await clock.advance(2 * 3_600_000);
  const { samples = [] } = history.read();
  expect(samples).toHaveLength(360);
  expect(samples.at(-1)?.at).toBe(new Date(clock.now()).toISOString());
  await history.stop();
});

test("leaves no timer when it stops", async () => {
  const { clock, history } = await opened();
  await clock.advance(10_000);
  await history.stop();
  expect(clock.pending).toBe(0);
});
