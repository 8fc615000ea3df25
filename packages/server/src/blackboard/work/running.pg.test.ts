import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { openRunning } from "./running.ts";

const of = (writer: number, reviewer = 0) =>
  new Map([
    ["writer", writer],
    ["reviewer", reviewer],
  ]);

test("each server reports the running tasks of all servers, also one that runs none", async () => {
  await using own = await testDatabase();
  const context = await testContext();
  const [one, two, idle] = [1, 2, 3].map(() => openRunning(own.database, context));
  expect(await one!.share(of(2, 1))).toEqual(of(2, 1));
  expect(await two!.share(of(3))).toEqual(of(5, 1));
  expect(await idle!.share(of(0))).toEqual(of(5, 1));
  expect(await one!.share(of(0, 1))).toEqual(of(3, 1));
  await two!.stop();
  expect(await idle!.share(of(0))).toEqual(of(0, 1));
});

test("a server without a report for minutes does not count, and a busy one reports in time", async () => {
  await using own = await testDatabase();
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const [gone, busy, idle] = [1, 2, 3].map(() => openRunning(own.database, context));
  await gone!.share(of(1));
  await busy!.share(of(2));
  await own.database.query({
    text: "UPDATE runtime.board_running SET reported_at = now() - interval '1 hour'",
  });
  await clock.advance(60_000);
  await busy!.share(of(2));
  expect(await idle!.share(of(0))).toEqual(of(2));
});
