import { importPeer } from "../../../peers/import_peer.ts";
import { CONCURRENCY } from "../bench.ts";
import { serveQueue } from "../queue.ts";

// What is used of bullmq.
interface Opened {
  waitUntilReady(): Promise<unknown>;
  close(): Promise<void>;
}
interface Queue extends Opened {
  addBulk(
    jobs: readonly { name: string; data: unknown; opts: { removeOnComplete: true } }[],
  ): Promise<unknown>;
}
interface Worker extends Opened {
  on(event: "error" | "completed", listener: (given: unknown) => void): void;
}
interface BullMq {
  readonly Queue: new (name: string, options: { connection: { url: string } }) => Queue;
  readonly Worker: new (
    name: string,
    work: () => Promise<void>,
    options: { connection: { url: string; maxRetriesPerRequest: null }; concurrency: number },
  ) => Worker;
}

const { Queue, Worker } = await importPeer<BullMq>("bullmq");

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
