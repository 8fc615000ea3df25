import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { startRetention } from "./retention.ts";

test("deletes finished rows after their time in small steps, and keeps waiting ones", async () => {
  await using own = await testDatabase();
  const { database } = own;
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const [old, young] = [new Date(clock.now() - 2_000), new Date(clock.now() - 500)];
  for (const [i, at] of [...Array.from({ length: 25 }, () => old), young].entries()) {
    const id = String(i);
    await database.transaction([
      {
        text: "INSERT INTO runtime.board_gathered (agent, org_id, artifact_id, version, seen_at) VALUES ('a', 'acme', $1, 1, $2)",
        values: [id, at],
      },
      {
        text: "INSERT INTO runtime.board_replays (agent, org_id, dead_letter_id, replay_id, created_at) VALUES ('a', 'acme', $1, 'r', $2)",
        values: [id, at],
      },
      {
        text: `INSERT INTO runtime.board_approvals (approval_id, org_id, agent, task, state, created_at, decided_at)
          VALUES ($1, 'acme', 'a', '{}', 'approved', $2, $2), ($1 || 'waits', 'acme', 'a', '{}', 'pending', $2, NULL)`,
        values: [id, at],
      },
    ]);
  }
  const left = async () => {
    const [row] = await database.query({
      text: `SELECT (SELECT count(*) FROM runtime.board_gathered) AS gathered,
        (SELECT count(*) FROM runtime.board_replays) AS replays,
        (SELECT count(*) FROM runtime.board_approvals WHERE state = 'approved') AS approved,
        (SELECT count(*) FROM runtime.board_approvals WHERE state = 'pending') AS pending`,
    });
    return row as { gathered: bigint; replays: bigint; approved: bigint; pending: bigint };
  };
  const purge = startRetention(database, context, { keepMs: 1_000, batch: 10 });
  await until("the old ones are gone", async () => {
    const { gathered, replays, approved } = await left();
    return gathered + replays + approved === 3n;
  });
  await purge.stop();
  expect(await left()).toEqual({ gathered: 1n, replays: 1n, approved: 1n, pending: 26n });
});
