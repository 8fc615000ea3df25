import { testContext } from "@khala/test-support/kit/context";
import { syncMetrics } from "../../../packages/server/src/sync/metrics.ts";
import { runSummaries } from "../../../packages/server/src/sync/models/runtime.ts";
import { Feed, type Subscription } from "../../../packages/server/src/sync/read/feed.ts";
import type { Journal, JournalRow } from "../../../packages/server/src/sync/read/journal.ts";
import { watchOtherLoad } from "../kit/proc.ts";
import { range } from "../kit/report.ts";
import { type Spread, spread } from "../kit/stats.ts";
import type { PartRunner } from "./bench.ts";

const ROWS = 20;
const SUBJECTS = [1_000, 5_000];

/** (g) What a broadcast to named subjects takes of the event loop. */
export const audiences: PartRunner = async ({ rounds }) => {
  const otherLoad = watchOtherLoad();
  const alike: Spread[] = [];
  const different: Spread[] = [];
  for (const count of SUBJECTS) {
    alike.push(await measure(count, rounds, () => true));
    // Every second subject is left out of one row: eleven different sets of rows.
    different.push(
      await measure(count, rounds, (subject, row) => subject % 2 === 0 || subject % ROWS !== row),
    );
  }
  const [, largest] = alike;
  return {
    title: `(g) Broadcast of ${ROWS} rows that name their viewers`,
    how: [
      "CPU time of the thread from the rows that were read to the frames that were offered; sockets that take every frame",
      "every subject has one socket; the same audience in all rows, or one of eleven sets of rows for each subject",
    ],
    tables: [
      {
        head: ["ms, median [min–max]", ...SUBJECTS.map((count) => `${count.toLocaleString("en")} subjects`)],
        rows: [
          ["the same audience", ...alike.map(range)],
          ["different audiences", ...different.map(range)],
        ],
      },
    ],
    bars: [{ name: `${SUBJECTS[1]} subjects, ms`, got: largest!.median, most: 100 }],
    otherLoad: otherLoad(),
  };
};

async function measure(
  count: number,
  rounds: number,
  isNamed: (subject: number, row: number) => boolean,
): Promise<Spread> {
  const context = await testContext();
  const { topic } = runSummaries;
  const names = Array.from({ length: count }, (_, i) => `subject-${i}`);
  let rows: readonly JournalRow[] = [];
  const journal: Pick<Journal, "heads" | "read"> = {
    heads: async () => ({
      epoch: "epoch",
      topics: new Map([[topic, { head: 0n, floor: 0n, partsFloor: 0n }]]),
    }),
    read: async (_, after) => rows.filter(({ watermark }) => watermark > after),
  };
  const feed = await Feed.open(runSummaries, context, {
    journal: journal as Journal,
    metrics: syncMetrics(context.telemetry.meter),
    batch: { rows: 200, bytes: 2 << 20, payloadBytes: 256 << 10 },
    tailBytes: 0,
  });
  let offered = 0;
  for (const subject of names) {
    const subscription: Subscription = {
      org: "acme",
      subject,
      encoding: "json",
      history: feed.history,
      position: 0n,
      live: false,
      replaying: false,
      ended: false,
      offer: () => offered++ >= 0,
      stale: () => {},
    };
    feed.follow(subscription);
  }
  const times: number[] = [];
  // The first rounds are for the compiler.
  for (let round = -2; round < rounds; round++) {
    const { head } = feed;
    rows = Array.from({ length: ROWS }, (_, i) =>
      journalRow(
        head + BigInt(i + 1),
        names.filter((_, subject) => isNamed(subject, i)),
      ),
    );
    offered = 0;
    const before = process.threadCpuUsage();
    await feed.refresh();
    const { user, system } = process.threadCpuUsage(before);
    if (offered !== count) throw new Error(`${offered} frames were offered to ${count} sockets.`);
    if (round >= 0) times.push((user + system) / 1_000);
  }
  return spread(times);
}

function journalRow(watermark: bigint, audience: readonly string[]): JournalRow {
  const payload = JSON.stringify({ text: "x".repeat(200) });
  return {
    watermark,
    docKey: `run:${watermark}`,
    docVersion: 1n,
    op: "upsert",
    payload,
    payloadHash: null,
    payloadBytes: payload.length,
    org: "acme",
    audience,
    hiddenFrom: null,
    trace: null,
    insertedAt: Date.now(),
  };
}
