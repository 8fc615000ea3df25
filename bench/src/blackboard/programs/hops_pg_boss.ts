import { setTimeout } from "node:timers/promises";
import pg from "pg";
import { BATCH } from "../bench.ts";
import { AT_A_TIME, AWAITS_MS, FAN, type HopsWhere, type Item, itemOf, type Shape } from "../hops.ts";
import { openJoins } from "../joins.ts";
import { type InTransaction, openPgBoss, type PgBoss } from "../pg_boss.ts";
import { serveQueue } from "../queue.ts";

const QUEUES = ["first", "second", "third"] as const;
type Queue = (typeof QUEUES)[number];
const LOOK_AGAIN_MS = 20;

/** Jobs of a batch, and batches under way in each queue. Where jobs wait, no more are under way than with the others. */
const batches = (shape: Shape) =>
  shape === "waiting" ? { size: AT_A_TIME / 2, atOnce: 2 } : { size: BATCH, atOnce: 4 };

/** What is done with a batch of a queue, in the transaction that completes it. */
type Handle = (items: readonly Item[], client: pg.PoolClient) => Promise<void>;

serveQueue<HopsWhere>({
  async publisher({ url }) {
    const boss = await openPgBoss(url, QUEUES);
    return { put: (payloads) => insert(boss, "first", payloads.map(itemOf)), close: () => boss.stop() };
  },

  async worker({ url, shape }, { settled, ran }) {
    const boss = await openPgBoss(url, QUEUES);
    const joins = await openJoins(url);
    const { size, atOnce } = batches(shape);
    const pool = new pg.Pool({ connectionString: url, max: atOnce * QUEUES.length });
    const stop = new AbortController();
    const handedTo =
      (queue: Queue): Handle =>
      (items, client) =>
        insert(boss, queue, items, client);
    const handles: Readonly<Record<Shape, readonly Handle[]>> = {
      single: [],
      pipeline: [handedTo("second"), handedTo("third")],
      waiting: [handedTo("second"), handedTo("third")],
      fanout: [
        (items, client) =>
          insert(
            boss,
            "second",
            items.flatMap((item) => Array.from({ length: FAN }, () => item)),
            client,
          ),
        async (items, client) => {
          const correlations = items.map(({ correlation }) => correlation);
          const whole = new Set(await joins.count(correlations, FAN, client));
          const joined = new Map(items.map((item) => [item.correlation, item]));
          const complete = [...joined.values()].filter(({ correlation }) => whole.has(correlation));
          await insert(boss, "third", complete, client);
        },
      ],
    };
    const loops = [...handles[shape], undefined].flatMap((handle, i) =>
      Array.from({ length: atOnce }, () => consume(QUEUES[i]!, handle)),
    );

    async function consume(queue: Queue, handle: Handle | undefined): Promise<void> {
      while (!stop.signal.aborted) {
        const jobs = await boss.fetch<Item>(queue, { batchSize: size });
        if (jobs.length === 0) {
          await setTimeout(LOOK_AGAIN_MS);
          continue;
        }
        if (shape === "waiting") await Promise.all(jobs.map(() => setTimeout(AWAITS_MS)));
        ran(jobs.length);
        const items = jobs.map(({ data }) => data);
        const ids = jobs.map(({ id }) => id);
        if (!handle) {
          settled(jobs.length);
          await boss.complete(queue, ids);
          continue;
        }
        await inTransaction(pool, async (client) => {
          await handle(items, client);
          await boss.complete(queue, ids, undefined, within(client));
        });
      }
    }

    return {
      async close() {
        stop.abort();
        await Promise.all(loops);
        await pool.end();
        await joins.close();
        await boss.stop();
      },
    };
  },
});

async function insert(
  boss: PgBoss,
  queue: Queue,
  items: readonly Item[],
  client?: pg.PoolClient,
): Promise<void> {
  for (let from = 0; from < items.length; from += 1_000) {
    const jobs = items.slice(from, from + 1_000).map((data) => ({ data }));
    await boss.insert(queue, jobs, client && within(client));
  }
}

function within(client: pg.PoolClient): InTransaction {
  return { db: { executeSql: (text, values) => client.query(text, values) } };
}

/** The next jobs and the completion commit together, as Khala's do: a crash neither loses nor repeats a hop. */
async function inTransaction(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<void>): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await work(client);
    await client.query("COMMIT");
  } finally {
    client.release();
  }
}
