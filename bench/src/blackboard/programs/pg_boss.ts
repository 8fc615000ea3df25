import { setTimeout } from "node:timers/promises";
import { BATCH, CONCURRENCY, type PgBossUse } from "../bench.ts";
import { openPgBoss, type PgBoss } from "../pg_boss.ts";
import { serveQueue, type Working } from "../queue.ts";

const QUEUE = "findings";
/** Batches that are under way at a time. */
const AT_ONCE = 4;
const WORK = {
  batchSize: BATCH,
  localConcurrency: AT_ONCE,
  burstWhenBatchFull: true,
  pollingIntervalSeconds: 0.5,
} as const;
/** As many loops as Khala's agent has tasks at a time. Each fetches again at once while more than one job waits. */
const ALONE = {
  batchSize: 1,
  localConcurrency: CONCURRENCY,
  burstWhenReadyExceeds: 1,
  pollingIntervalSeconds: 0.5,
} as const;
/** How soon its loops know how many wait: as soon as it can be set to. */
const COUNTING = { superviseIntervalSeconds: 1, monitorIntervalSeconds: 1, queueCacheIntervalSeconds: 1 };
const LOOK_AGAIN_MS = 20;

type Work = (boss: PgBoss, settled: (jobs: number) => void) => Promise<Working>;

/** How its jobs can be worked on. */
const WORKERS: Readonly<Record<PgBossUse["how"], Work>> = {
  /** The handler says of every job what became of it. */
  async each(boss, settled) {
    await boss.work(QUEUE, { ...WORK, perJobResults: true }, async (jobs) => {
      settled(jobs.length);
      return jobs.map(({ id }) => ({ id, status: "completed" }));
    });
    return { async close() {} };
  },

  /** Jobs are fetched in batches and worked on one by one; those that went well are completed with one statement. */
  async grouped(boss, settled) {
    const stop = new AbortController();
    const loops = Array.from({ length: AT_ONCE }, async () => {
      while (!stop.signal.aborted) {
        const jobs = await boss.fetch(QUEUE, { batchSize: BATCH });
        const done: string[] = [];
        const failed: string[] = [];
        for (const { id } of jobs) (succeeds() ? done : failed).push(id);
        if (failed.length > 0) await boss.fail(QUEUE, failed);
        if (done.length > 0) await boss.complete(QUEUE, done);
        settled(done.length);
        if (jobs.length === 0) await setTimeout(LOOK_AGAIN_MS);
      }
    });
    return {
      async close() {
        stop.abort();
        await Promise.all(loops);
      },
    };
  },

  /** The usual way: a handler for each job, and a statement to fetch and one to complete it. */
  async alone(boss, settled) {
    await boss.work(QUEUE, ALONE, async (jobs) => {
      settled(jobs.length);
      return undefined;
    });
    return { async close() {} };
  },

  /** The outcome of the handler is that of all jobs of a batch. */
  async batch(boss, settled) {
    await boss.work(QUEUE, WORK, async (jobs) => {
      settled(jobs.length);
      return undefined;
    });
    return { async close() {} };
  },
};

serveQueue<PgBossUse>({
  async publisher({ url }) {
    const boss = await openPgBoss(url, [QUEUE]);
    return {
      async put(payloads) {
        await boss.insert(
          QUEUE,
          payloads.map((data) => ({ data })),
        );
      },
      close: () => boss.stop(),
    };
  },
  async worker({ url, how }, settled) {
    const boss = await openPgBoss(url, [QUEUE], how === "alone" ? COUNTING : {});
    const working = await WORKERS[how](boss, settled);
    return {
      async close() {
        await working.close();
        await boss.stop();
      },
    };
  },
});

/** The work on a job. */
function succeeds(): boolean {
  return true;
}
