import { setTimeout } from "node:timers/promises";
import { BATCH } from "../bench.ts";
import { AT_A_TIME, AWAITS_MS, FAN, type HopsWhere, type Item, itemOf, type Shape } from "../hops.ts";
import { openJoins } from "../joins.ts";
import { openPgBoss, type PgBoss } from "../pg_boss.ts";
import { serveQueue } from "../queue.ts";

const QUEUES = ["first", "second", "third"] as const;
type Queue = (typeof QUEUES)[number];
const LOOK_AGAIN_MS = 20;

/** Jobs of a batch, and batches under way in each queue. Where jobs wait, no more are under way than with the others. */
const batches = (shape: Shape) =>
  shape === "waiting" ? { size: AT_A_TIME / 2, atOnce: 2 } : { size: BATCH, atOnce: 4 };

/** What is done with a batch of a queue, before it is completed with one statement. */
type Handle = (items: readonly Item[]) => Promise<void>;

serveQueue<HopsWhere>({
  async publisher({ url }) {
    const boss = await openPgBoss(url, QUEUES);
    return { put: (payloads) => insert(boss, "first", payloads.map(itemOf)), close: () => boss.stop() };
  },

  async worker({ url, shape }, settled) {
    const boss = await openPgBoss(url, QUEUES);
    const joins = await openJoins(url);
    const stop = new AbortController();
    const ends: Handle = async (items) => settled(items.length);
    const handedTo =
      (queue: Queue): Handle =>
      (items) =>
        insert(boss, queue, items);
    const waits =
      (handle: Handle): Handle =>
      async (items) => {
        await Promise.all(items.map(() => setTimeout(AWAITS_MS)));
        await handle(items);
      };
    const handles: Readonly<Record<Shape, readonly Handle[]>> = {
      single: [ends],
      pipeline: [handedTo("second"), handedTo("third"), ends],
      waiting: [waits(handedTo("second")), waits(handedTo("third")), waits(ends)],
      fanout: [
        (items) =>
          insert(
            boss,
            "second",
            items.flatMap((item) => Array.from({ length: FAN }, () => item)),
          ),
        async (items) => {
          const whole = new Set(
            await joins.count(
              items.map(({ correlation }) => correlation),
              FAN,
            ),
          );
          const joined = new Map(items.map((item) => [item.correlation, item]));
          await insert(
            boss,
            "third",
            [...joined.values()].filter(({ correlation }) => whole.has(correlation)),
          );
        },
        ends,
      ],
    };
    const loops = handles[shape].flatMap((handle, i) =>
      Array.from({ length: batches(shape).atOnce }, () => consume(boss, QUEUES[i]!, handle)),
    );

    async function consume(boss: PgBoss, queue: Queue, handle: Handle): Promise<void> {
      while (!stop.signal.aborted) {
        const jobs = await boss.fetch<Item>(queue, { batchSize: batches(shape).size });
        if (jobs.length === 0) {
          await setTimeout(LOOK_AGAIN_MS);
          continue;
        }
        await handle(jobs.map(({ data }) => data));
        await boss.complete(
          queue,
          jobs.map(({ id }) => id),
        );
      }
    }
    return {
      async close() {
        stop.abort();
        await Promise.all(loops);
        await joins.close();
        await boss.stop();
      },
    };
  },
});

async function insert(boss: PgBoss, queue: Queue, items: readonly Item[]): Promise<void> {
  for (let from = 0; from < items.length; from += 1_000)
    await boss.insert(
      queue,
      items.slice(from, from + 1_000).map((data) => ({ data })),
    );
}
