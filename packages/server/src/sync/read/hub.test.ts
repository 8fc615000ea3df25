import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import { type HubOptions, openHub } from "./hub.ts";
import type { Heads } from "./journal.ts";

test("polls every second while no topic is followed, and more often from the first feed on", async () => {
  const clock = new ManualClock();
  let polls = 0;
  const heads = async (): Promise<Heads> => {
    polls++;
    return { epoch: "e", topics: new Map() };
  };
  const hub = openHub(await testContext({ clock }), {
    database: {
      server: () => "s",
      query: async () => [{ id: "e", postgres: "p", heads: {} }],
    } as unknown as Database,
    journal: { heads, read: async () => [] },
    models: { byTopic: (topic: string) => ({ topic }) },
    pollMs: 250,
    batch: { rows: 10, bytes: 1_000, payloadBytes: 1_000 },
    tailBytes: 1_000,
  } as unknown as HubOptions);
  const poll = (count: number) => until("it waits", () => polls >= count && clock.pending > 0);
  await poll(1);
  await clock.advance(900);
  expect(polls).toBe(1);
  await clock.advance(100);
  expect(polls).toBe(2);

  await hub.feed("notes");
  // Opening a feed looks at the heads, too.
  await poll(4);
  const before = polls;
  await clock.advance(1_000);
  expect(polls).toBeGreaterThanOrEqual(before + 3);
  await hub.stop();
});
