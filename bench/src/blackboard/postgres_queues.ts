import type { Postgres } from "../kit/postgres.ts";
import { watchOtherLoad } from "../kit/proc.ts";
import { mostStolen, type Window } from "../kit/quiet.ts";
import { figure, range } from "../kit/report.ts";
import { BATCH, type Bench, CALL, CONCURRENCY, type PartRunner, type PgBossUse } from "./bench.ts";
import { openFlow, type Steady } from "./flow.ts";
import {
  drainInTurns,
  measureInTurns,
  medianRatio,
  STEADY_HEAD,
  spreadOf,
  steadyCells,
  turnsOf,
} from "./rates.ts";

interface System {
  readonly title: string;
  readonly program: string;
  /** Its database. */
  readonly tables: Parameters<Postgres["create"]>[0];
  /** What its program is told. */
  where(url: string): unknown;
  /** The backlog, as a part of that of most. */
  readonly part?: number;
}

/** Khala and another, measured in turns. */
interface Pair {
  readonly what: string;
  readonly ours: System;
  readonly other: System;
  /** Khala's rate, as a multiple of the other's. */
  readonly least: number;
}

interface Measured extends Pair {
  readonly steady: readonly Window<Record<Side, Steady>>[];
  readonly drained: readonly Window<Record<Side, number>>[];
}

type Side = "ours" | "other";

const khala = (program: string, awaits = false) =>
  ({ program, tables: "khala", where: (url: string) => ({ url, awaits }) }) as const;
const pgBoss = (how: PgBossUse["how"]) =>
  ({ program: "pg_boss", tables: "empty", where: (url: string): PgBossUse => ({ url, how }) }) as const;

const KHALA: System = { title: "Khala", ...khala("khala") };
const ONE_BY_ONE: readonly Pair[] = [
  pair("graphile-worker", { program: "graphile_worker", tables: "empty", where: (url) => url }, 1),
  pair("pg-boss, results per job", pgBoss("each")),
  pair("pg-boss, grouped completions", pgBoss("grouped")),
  // All of it would take minutes.
  pair("pg-boss, one job at a time", { ...pgBoss("alone"), part: 0.1 }),
];
const PAIRS: readonly Pair[] = [
  ...ONE_BY_ONE,
  {
    what: "in batches, Khala ÷ pg-boss",
    ours: { title: `Khala, batches of ${BATCH}`, ...khala("khala_batch") },
    other: { title: `pg-boss, batches of ${BATCH}`, ...pgBoss("batch") },
    least: 3,
  },
  // It tells what a promise for each task costs, and is held against nothing.
  {
    what: "an agent that awaits ÷ one that does not",
    ours: { title: "Khala, an agent that awaits", ...khala("khala", true) },
    other: KHALA,
    least: 0,
  },
];

function pair(title: string, other: Omit<System, "title">, least = 3): Pair {
  return { what: `one by one, Khala ÷ ${title}`, ours: KHALA, other: { title, ...other }, least };
}

/** (b) Tasks per second on PostgreSQL. */
export const postgresQueues: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const backlog = bench.quick ? 6_000 : 60_000;
  const measured: Measured[] = [];
  for (const each of PAIRS) measured.push(await measure(bench, each, backlog));
  return {
    title: "(b) PostgreSQL: tasks per second with one working process",
    how: [
      `published and worked at once: a publisher with ${CALL.atOnce} calls of ${CALL.size} jobs under way in one process, a worker in another, and up to 5,000 that wait at any time, fewer where the worker is the faster of the two, as Khala's is: then it is the publisher that limits the rate`,
      `a backlog: ${figure(backlog)} jobs are there before the worker starts, so many that it is not the start of a process that is measured, and a tenth of them for pg-boss with one job at a time; from the first tenth to the last job`,
      "the jobs do nothing; payloads of 250 bytes; every commit waits for the disk, but for Khala's claims, which are no more than leases; each on a database of its own",
      "Khala and each of the others take turns, of four seconds or of one backlog, each while the other rests; a ratio is the median of those of each round. Before a turn the dirty pages are written out, and the database is vacuumed while it warms up, or after a backlog: nobody pays for the other, and none for its own",
      "one by one, each job with an outcome of its own: all but the two rows of batches",
      `Khala: two servers without their gateways, of which one works, agent with concurrency ${CONCURRENCY}; it keeps the artifact with its index, and the mark that it was done, and counts what is settled after the commit. An agent that awaits has a promise and a signal of its own for each task`,
      "graphile-worker: addJobs, and the settings of its documentation's page on performance: 24 concurrent jobs, a local queue of 500, completeJobBatchDelay 0; it deletes the job and keeps nothing; counted before the deletion is written",
      `pg-boss: insert; it keeps the job as completed. Of its ways to give every job an outcome, the two that need no statement for each job: work with batchSize ${BATCH}, localConcurrency 4, burstWhenBatchFull and perJobResults (counted before the completion is written), and four loops of fetch with batchSize ${BATCH}, the work, and one complete with the ids of those that went well. Its third and most usual way is one job at a time: work with batchSize 1, localConcurrency ${CONCURRENCY}, its shortest pollingIntervalSeconds, and burstWhenReadyExceeds 1 with its statistics read every second, without which each of the loops would wait for half a second after every job; it takes two statements for every job`,
      `${BATCH} at a time with one outcome for all: the two rows of batches. Khala: an agent with a batch of ${BATCH}, in no order, as pg-boss has none. pg-boss: work with batchSize ${BATCH}, localConcurrency 4, burstWhenBatchFull. Rates count jobs, not batches`,
      "each ratio to pg-boss one by one is shown for all of its ways: the least one counts",
    ],
    tables: [
      {
        head: ["tasks", ...STEADY_HEAD, "a backlog, per second"],
        rows: rowsOf(measured),
      },
    ],
    bars: measured.filter(({ least }) => least > 0).flatMap(bars),
    otherLoad: otherLoad(),
    stolen: mostStolen(...measured.flatMap(({ steady, drained }) => [steady, drained])),
  };
};

async function measure(bench: Bench, each: Pair, backlog: number): Promise<Measured> {
  const { postgres } = bench;
  const urls: Record<Side, string> = {
    ours: await postgres.create(each.ours.tables),
    other: await postgres.create(each.other.tables),
  };
  const before = () => postgres.checkpoint();
  const vacuum = (side: Side) => postgres.vacuum(urls[side]);
  const flow = (side: Side) =>
    openFlow(bench, each[side].program, each[side].where(urls[side]), postgres.pid);
  const steady = await inTurns();
  const waiting = (side: Side) => ({
    program: each[side].program,
    where: each[side].where(urls[side]),
    count: backlog * (each[side].part ?? 1),
  });
  const drained = await drainInTurns(
    bench,
    { ours: waiting("ours"), other: waiting("other") },
    { before, after: vacuum },
  );
  for (const url of Object.values(urls)) await postgres.drop(url);
  return { ...each, steady, drained };

  async function inTurns() {
    await using ours = await flow("ours");
    await using other = await flow("other");
    // Not while it rests: one of them empties its table then, and a planner that has seen it empty reads all of it from then on.
    return await measureInTurns(bench, { ours, other }, { before, meanwhile: vacuum });
  }
}

/** A row for each system, of all turns that it had. */
function rowsOf(measured: readonly Measured[]): string[][] {
  const titles = new Set(measured.flatMap(({ ours, other }) => [ours.title, other.title]));
  return [...titles].map((title) => {
    const of = (side: Side) => measured.filter((each) => each[side].title === title);
    const turns = <T>(windows: (each: Measured) => readonly Window<Record<Side, T>>[]) =>
      (["ours", "other"] as const).flatMap((side) =>
        of(side).flatMap((each) => turnsOf(windows(each), side)),
      );
    const steady = turns(({ steady }) => steady);
    return [title, ...steadyCells(steady), range(spreadOf(turns(({ drained }) => drained)))];
  });
}

function bars({ what, least, steady, drained }: Measured) {
  return [
    {
      name: `${what}, at once`,
      got: medianRatio(steady, ({ ours, other }) => ours.rate / other.rate),
      least,
    },
    { name: `${what}, a backlog`, got: medianRatio(drained, ({ ours, other }) => ours / other), least },
  ];
}
