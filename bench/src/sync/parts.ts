import { testContext } from "@khala/test-support/kit/context";
import { syncMetrics } from "../../../packages/server/src/sync/metrics.ts";
import { defineModel } from "../../../packages/server/src/sync/model.ts";
import { partLabel, type TopicPart } from "../../../packages/server/src/sync/part.ts";
import { Feed, type Subscription } from "../../../packages/server/src/sync/read/feed.ts";
import type { Bounds, Journal, JournalRow } from "../../../packages/server/src/sync/read/journal.ts";
import { watchOtherLoad } from "../kit/proc.ts";
import { range } from "../kit/report.ts";
import { type Spread, spread } from "../kit/stats.ts";
import type { PartRunner } from "./bench.ts";

const ROWS = 20;
const SUBSCRIBERS = 10_000;

const model = defineModel<{ project_id: string }>({
  topic: "bench.tasks",
  prefix: "task",
  streams: [],
  project: (before) => before,
  by: ["project_id"],
});

interface Measured {
  /** Reads of the journal for one batch of rows, and for all subscribers that resume at once. */
  readonly live: number;
  readonly resumed: number;
  readonly frames: number;
  readonly ms: Spread;
}

/** (h) What many followed parts of one topic take, compared with one. */
export const parts: PartRunner = async ({ rounds }) => {
  const otherLoad = watchOtherLoad();
  const one = await measure(1, rounds);
  const many = await measure(SUBSCRIBERS, rounds);
  const count = SUBSCRIBERS.toLocaleString("en");
  const row = (name: string, value: (measured: Measured) => string | number) => [
    name,
    String(value(one)),
    String(value(many)),
  ];
  return {
    title: `(h) ${count} subscriptions to parts of one topic`,
    how: [
      `one batch of ${ROWS} rows of different documents, each in a part of its own, or all in the one part`,
      "reads of the journal, live and when all subscriptions resume at once; CPU time of the thread from the rows that were read to the frames",
    ],
    tables: [
      {
        head: ["", "1 part", `${count} parts`],
        rows: [
          row("reads for the batch", ({ live }) => live),
          row("reads when all resume", ({ resumed }) => resumed),
          row("frames of the batch", ({ frames }) => frames),
          row("ms, median [min–max]", ({ ms }) => range(ms)),
        ],
      },
    ],
    bars: [
      { name: "reads for the batch, parts to one", got: many.live / one.live, most: 1 },
      { name: "reads when all resume, parts to one", got: many.resumed / one.resumed, most: 1 },
    ],
    otherLoad: otherLoad(),
  };
};

async function measure(count: number, rounds: number): Promise<Measured> {
  const context = await testContext();
  const partOf = (i: number): TopicPart => [{ field: "project_id", value: `p${i % count}` }];
  let rows: readonly JournalRow[] = [];
  let head = 0n;
  let reads = 0;
  const bounds = (): Bounds => ({ head, floor: 0n, partsFloor: 0n });
  const journal: Journal = {
    heads: async () => ({ epoch: "epoch", topics: new Map([[model.topic, bounds()]]) }),
    async read(_, after) {
      const found = rows.filter(({ watermark }) => watermark > after);
      if (found.length > 0) reads++;
      return found;
    },
    async readWanted(_, wants) {
      reads++;
      return { pages: wants.map(() => ({ rows: [], through: head })), bounds: bounds() };
    },
  };
  const feed = await Feed.open(model, context, {
    journal,
    metrics: syncMetrics(context.telemetry.meter),
    batch: { rows: 200, bytes: 2 << 20, payloadBytes: 256 << 10 },
    tailBytes: 0,
  });
  let frames = 0;
  const subscribe = (i: number, position: bigint): Subscription => ({
    org: "acme",
    subject: `subject-${i}`,
    encoding: "json",
    part: partOf(i),
    history: feed.history,
    position,
    live: false,
    replaying: false,
    ended: false,
    offer: () => frames++ >= 0,
    stale: () => {},
  });
  const subscriptions = Array.from({ length: SUBSCRIBERS }, (_, i) => subscribe(i, 0n));
  for (const each of subscriptions) feed.follow(each);
  const times: number[] = [];
  let live = 0;
  // The first rounds are for the compiler.
  for (let round = -2; round < rounds; round++) {
    rows = Array.from({ length: ROWS }, (_, i) =>
      journalRow(head + BigInt(i + 1), partLabel(partOf(i * 7)[0])),
    );
    head += BigInt(ROWS);
    [frames, reads] = [0, 0];
    const before = process.threadCpuUsage();
    await feed.refresh();
    const { user, system } = process.threadCpuUsage(before);
    live = reads;
    if (round >= 0) times.push((user + system) / 1_000);
  }
  const offered = frames;
  reads = 0;
  for (const each of subscriptions) feed.leave(each);
  await Promise.all(subscriptions.map((_, i) => feed.pull(subscribe(i, 0n))));
  return { live, resumed: reads, frames: offered, ms: spread(times) };
}

function journalRow(watermark: bigint, label: string): JournalRow {
  const payload = JSON.stringify({ text: "x".repeat(200) });
  return {
    watermark,
    docKey: `task:${watermark}`,
    docVersion: 1n,
    op: "upsert",
    payload,
    payloadHash: null,
    payloadBytes: payload.length,
    org: "acme",
    audience: null,
    hiddenFrom: null,
    parts: [label],
    leftParts: [],
    trace: null,
    insertedAt: Date.now(),
  };
}
