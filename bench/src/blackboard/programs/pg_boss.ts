import { PgBoss } from "pg-boss";
import { serveQueue } from "../queue.ts";

const QUEUE = "findings";
/** Batches are fetched with one statement and settled with another, and every job has its own outcome. */
const WORK = {
  batchSize: 250,
  localConcurrency: 4,
  perJobResults: true,
  burstWhenBatchFull: true,
  pollingIntervalSeconds: 0.5,
} as const;

serveQueue<string>({
  async publisher(url) {
    const boss = await open(url);
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
  async worker(url, settled) {
    const boss = await open(url);
    await boss.work(QUEUE, WORK, async (jobs) => {
      settled(jobs.length);
      return jobs.map(({ id }) => ({ id, status: "completed" }));
    });
    return { close: () => boss.stop() };
  },
});

async function open(url: string): Promise<PgBoss> {
  const boss = new PgBoss({ connectionString: url, max: 10, schedule: false });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  await boss.createQueue(QUEUE);
  return boss;
}
