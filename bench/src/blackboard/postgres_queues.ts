import type { Postgres } from "../kit/postgres.ts";
import { watchOtherLoad } from "../kit/proc.ts";
import { mostStolen, type Window } from "../kit/quiet.ts";
import { figure, range } from "../kit/report.ts";
import { BATCH, type Bench, CALL, CONCURRENCY, type PartRunner, type PgBossUse } from "./bench.ts";
import type { Steady } from "./flow.ts";
import { drainRates, measureSteady, medianRate, STEADY_HEAD, spreadOf, steadyCells } from "./rates.ts";

interface System {
  readonly title: string;
  readonly program: string;
  /** Its database. */
  readonly tables: Parameters<Postgres["create"]>[0];
  /** What its program is told. */
  where(url: string): unknown;
}

interface Measured extends System {
  readonly steady: readonly Window<Steady>[];
  readonly drained: readonly Window<number>[];
}

const khala = (program: string, awaits = false) =>
  ({ program, tables: "khala", where: (url: string) => ({ url, awaits }) }) as const;
const pgBoss = (how: PgBossUse["how"]) =>
  ({ program: "pg_boss", tables: "empty", where: (url: string): PgBossUse => ({ url, how }) }) as const;

const EACH: readonly System[] = [
  { title: "Khala", ...khala("khala") },
  { title: "Khala, an agent that awaits", ...khala("khala", true) },
  { title: "graphile-worker", program: "graphile_worker", tables: "empty", where: (url) => url },
  { title: "pg-boss, results per job", ...pgBoss("each") },
  { title: "pg-boss, grouped completions", ...pgBoss("grouped") },
  { title: "pg-boss, one job at a time", ...pgBoss("alone") },
];
const TOGETHER: readonly System[] = [
  { title: `Khala, batches of ${BATCH}`, ...khala("khala_batch") },
  { title: `pg-boss, batches of ${BATCH}`, ...pgBoss("batch") },
];

/** (b) Tasks per second on PostgreSQL. */
export const postgresQueues: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const backlog = bench.quick ? 2_000 : 20_000;
  const measured: Measured[] = [];
  for (const system of EACH) measured.push(await measure(bench, system, backlog));
  for (const system of TOGETHER) measured.push(await measure(bench, system, 3 * backlog));
  const [ours, , graphile, bossEach, bossGrouped, bossAlone, ourBatches, bossBatches] = measured;
  return {
    title: "(b) PostgreSQL: tasks per second with one working process",
    how: [
      `published and worked at once: a publisher with ${CALL.atOnce} calls of ${CALL.size} jobs under way in one process, a worker in another, and 5,000 that wait at any time`,
      `a backlog: ${figure(backlog)} jobs are there before the worker starts; from the first tenth to the last job`,
      "the jobs do nothing; payloads of 250 bytes; every commit waits for the disk, but for Khala's claims, which are no more than leases; each on a database of its own, which is dropped before the next one",
      "one by one, each job with an outcome of its own: all but the last two rows",
      `Khala: two servers without their gateways, of which one works, agent with concurrency ${CONCURRENCY}; it keeps the artifact with its index, and the mark that it was done, and counts what is settled after the commit. An agent that awaits has a promise and a signal of its own for each task`,
      "graphile-worker: addJobs, and the settings of its documentation's page on performance: 24 concurrent jobs, a local queue of 500, completeJobBatchDelay 0; it deletes the job and keeps nothing; counted before the deletion is written",
      `pg-boss: insert; it keeps the job as completed. Of its ways to give every job an outcome, the two that need no statement for each job: work with batchSize ${BATCH}, localConcurrency 4, burstWhenBatchFull and perJobResults (counted before the completion is written), and four loops of fetch with batchSize ${BATCH}, the work, and one complete with the ids of those that went well. Its third and most usual way is one job at a time: work with batchSize 1, localConcurrency ${CONCURRENCY}, its shortest pollingIntervalSeconds, and burstWhenReadyExceeds 1 with its statistics read every second, without which each of the loops would wait for half a second after every job; it takes two statements for every job`,
      `${BATCH} at a time with one outcome for all: the last two rows. Khala: an agent with a batch of ${BATCH}, in no order, as pg-boss has none. pg-boss: work with batchSize ${BATCH}, localConcurrency 4, burstWhenBatchFull. Rates count jobs, not batches; the backlog is three times as long, so that more is gathered while others are worked on`,
      "each ratio to pg-boss one by one is shown for all of its ways: the least one counts",
    ],
    tables: [
      {
        head: ["tasks", ...STEADY_HEAD, "a backlog, per second"],
        rows: measured.map(({ title, steady, drained }) => [
          title,
          ...steadyCells(steady),
          range(spreadOf(drained)),
        ]),
      },
    ],
    bars: [
      ...bars("one by one, Khala ÷ graphile-worker", ours!, graphile!, 1),
      ...bars("one by one, Khala ÷ pg-boss with results per job", ours!, bossEach!, 3),
      ...bars("one by one, Khala ÷ pg-boss with grouped completions", ours!, bossGrouped!, 3),
      ...bars("one by one, Khala ÷ pg-boss with one job at a time", ours!, bossAlone!, 3),
      ...bars("in batches, Khala ÷ pg-boss", ourBatches!, bossBatches!, 3),
    ],
    otherLoad: otherLoad(),
    stolen: mostStolen(...measured.flatMap(({ steady, drained }) => [steady, drained])),
  };
};

async function measure(bench: Bench, system: System, backlog: number): Promise<Measured> {
  const { postgres } = bench;
  const url = await postgres.create(system.tables);
  const where = system.where(url);
  await postgres.checkpoint();
  const steady = await measureSteady(bench, system.program, where, postgres.pid);
  await postgres.checkpoint();
  const drained = await drainRates(bench, system.program, where, backlog);
  // What is vacuumed after it would cost whoever comes next.
  await postgres.drop(url);
  return { ...system, steady, drained };
}

function bars(name: string, ours: Measured, other: Measured, least: number) {
  return [
    { name: `${name}, at once`, got: medianRate(ours.steady) / medianRate(other.steady), least },
    {
      name: `${name}, a backlog`,
      got: spreadOf(ours.drained).median / spreadOf(other.drained).median,
      least,
    },
  ];
}
