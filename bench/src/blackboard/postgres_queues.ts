import { watchOtherLoad } from "../kit/proc.ts";
import { figure, range } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { CALL, CONCURRENCY, type PartRunner } from "./bench.ts";
import { drainRates, measureSteady, medianRate, STEADY_HEAD, type Steady, steadyCells } from "./rates.ts";

const SYSTEMS = [
  { name: "khala", title: "Khala", kind: "khala" },
  { name: "pg_boss", title: "pg-boss", kind: "empty" },
  { name: "graphile_worker", title: "graphile-worker", kind: "empty" },
] as const;

/** (b) Tasks per second on PostgreSQL. */
export const postgresQueues: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const { postgres, quick } = bench;
  const backlog = quick ? 2_000 : 20_000;
  const steady: Steady[][] = [];
  const drained: number[][] = [];
  for (const { name, kind } of SYSTEMS) {
    const url = await postgres.create(kind);
    const where = name === "khala" ? { url } : url;
    await postgres.checkpoint();
    steady.push(await measureSteady(bench, name, where, postgres.pid));
    await postgres.checkpoint();
    drained.push(await drainRates(bench, name, where, backlog));
  }
  const faster = (other: number) => medianRate(steady[0]!) / medianRate(steady[other]!);
  const fasterDrain = (other: number) => spread(drained[0]!).median / spread(drained[other]!).median;
  return {
    title: "(b) PostgreSQL: tasks per second with one working process",
    how: [
      `published and worked at once: a publisher with ${CALL.atOnce} calls of ${CALL.size} jobs under way in one process, a worker in another, and 5,000 that wait at any time`,
      `a backlog: ${figure(backlog)} jobs are there before the worker starts; from the first tenth to the last job`,
      "the jobs do nothing; payloads of 250 bytes; every commit waits for the disk; each on a database of its own",
      `Khala: two servers without their gateways, of which one works, agent with concurrency ${CONCURRENCY}; it keeps the artifact with its index, and the mark that it was done, and counts what is settled after the commit`,
      "pg-boss: insert, and work with batchSize 250, localConcurrency 4, burstWhenBatchFull and perJobResults: a batch is fetched with one statement and completed with another, and each job has its own outcome, as with the others; it keeps the job as completed; counted before the completion is written",
      "graphile-worker: addJobs, and the settings of its documentation's page on performance: 24 concurrent jobs, a local queue of 500, completeJobBatchDelay 0; it deletes the job and keeps nothing; counted before the deletion is written",
    ],
    tables: [
      {
        head: ["tasks", ...STEADY_HEAD, "a backlog, per second"],
        rows: SYSTEMS.map(({ title }, i) => [title, ...steadyCells(steady[i]!), range(spread(drained[i]!))]),
      },
    ],
    bars: [
      { name: "at once, Khala ÷ pg-boss", got: faster(1), least: 3 },
      { name: "at once, Khala ÷ graphile-worker", got: faster(2), least: 1 },
      { name: "a backlog, Khala ÷ pg-boss", got: fasterDrain(1), least: 3 },
      { name: "a backlog, Khala ÷ graphile-worker", got: fasterDrain(2), least: 1 },
    ],
    otherLoad: otherLoad(),
  };
};
