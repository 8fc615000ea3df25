import { ManualClock } from "@khala/test-support/kit/manual_clock";
import fc from "fast-check";
import { expect, test } from "vitest";
import { task } from "../test_support.ts";
import { HEADER } from "../topics/record_headers.ts";
import { topicNames } from "../topics/topics.ts";
import { tierFor } from "./retry_tiers.ts";
import { type Finished, recordsOf, type SettlementRules } from "./settlement.ts";

const DELAYS = [1_000, 10_000, 60_000, 300_000];

/** The tiers a retry passes, and its lateness, if other records hold it for the whole delay of each. */
function descend(delayMs: number) {
  const passed: number[] = [];
  let left = delayMs;
  for (; left > 0; left -= passed.at(-1)!) passed.push(tierFor(DELAYS, left)!);
  return { passed, late: -left };
}

test.each([
  [1_000, [1_000]],
  [1_500, [1_000, 1_000]],
  [9_500, [10_000]],
  [12_000, [10_000, 1_000, 1_000]],
  [55_000, [60_000]],
  [130_000, [60_000, 60_000, 10_000]],
  [700_000, [300_000, 300_000, 60_000, 10_000, 10_000, 10_000, 10_000]],
])("a retry of %i ms passes the tiers %j", (delayMs, tiers) => {
  expect(descend(delayMs).passed).toEqual(tiers);
});

test("a retry is at most 10 % or one second late, after few moves", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1_000, max: 3_600_000 }), (delayMs) => {
      const { late, passed } = descend(delayMs);
      expect(late).toBeGreaterThanOrEqual(0);
      expect(late).toBeLessThanOrEqual(Math.max(1_000, delayMs / 10));
      expect(passed.filter((tier) => tier < 300_000).length).toBeLessThan(20);
    }),
  );
});

test("no settings for tiers mean no tier", () => {
  expect(tierFor([], 5)).toBeUndefined();
});

test("a failed task is due at its own time, not at its tier's", () => {
  const names = topicNames({ prefix: "flock.", topics: {} } as never);
  const clock = new ManualClock();
  const partition = { partition: 0, origin: () => ({ topic: "t", partition: 0, offset: "0", timestamp: 0 }) };
  const failure = { class: "Error", message: "not yet", kind: "retryable" } as const;
  const finished = {
    work: { task: task(), partition },
    result: { kind: "retry", failure, delayMs: 1_500 },
  } as unknown as Finished;
  const rules = {
    agent: "reviewer",
    strict: false,
    names,
    retryDelaysMs: DELAYS,
  } as unknown as SettlementRules;
  const [retry] = recordsOf({ clock, newId: () => "id" }, rules, finished, []);
  expect(retry!.topic).toBe(names.retry(1_000));
  const due = retry!.record.headers![HEADER.due] as Buffer;
  expect(Number(Buffer.from(due).readBigInt64BE())).toBe(clock.now() + 1_500);
});
