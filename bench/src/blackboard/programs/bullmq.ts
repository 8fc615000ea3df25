import { Queue, Worker } from "bullmq";
import { CONCURRENCY } from "../bench.ts";
import { serveQueue } from "../queue.ts";

const QUEUE = "findings";

serveQueue<string>({
  async publisher(url) {
    const queue = new Queue(QUEUE, { connection: { url } });
    await queue.waitUntilReady();
    return {
      async put(payloads) {
        await queue.addBulk(
          payloads.map((data) => ({ name: "finding", data, opts: { removeOnComplete: true } })),
        );
      },
      close: () => queue.close(),
    };
  },
  async worker(url, settled) {
    const worker = new Worker(QUEUE, async () => {}, {
      connection: { url, maxRetriesPerRequest: null },
      concurrency: CONCURRENCY,
    });
    worker.on("error", (error) => console.error(error));
    worker.on("completed", () => settled(1));
    await worker.waitUntilReady();
    return { close: () => worker.close() };
  },
});
