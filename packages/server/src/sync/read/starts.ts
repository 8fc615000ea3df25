import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";

/** The number of remembered starts: a client that missed more lists again. */
const KEPT = 1_000;

/** A start of a server, and the head of each topic at that moment. */
export interface Start {
  readonly id: string;
  /** The PostgreSQL that it found: when its server was started, and which database and table it has. */
  readonly postgres: string;
  readonly heads: Readonly<Record<string, string>>;
}

/**
 * The starts that the database knows. A cursor names the start that was the newest when it was given out, so one from a
 * future that a restore undid is recognised: the database does not know its start, or the first start on another
 * PostgreSQL found a head below the cursor. As long as that server runs, only a table that is made again can be restored.
 */
export class Starts {
  readonly #headsAfter = new Map<string, Start["heads"] | undefined>();

  /** Takes the starts in their order. */
  constructor(starts: readonly Start[]) {
    let next: Start | undefined;
    for (const start of starts.toReversed()) {
      const goesOn = next?.postgres === start.postgres;
      this.#headsAfter.set(start.id, goesOn ? this.#headsAfter.get(next!.id) : next?.heads);
      next = start;
    }
  }

  knows(start: string): boolean {
    return this.#headsAfter.has(start);
  }

  /** Whether a watermark that was seen under a start is part of this database's history. */
  covers(start: string, topic: string, watermark: bigint): boolean {
    if (!this.knows(start)) return false;
    const heads = this.#headsAfter.get(start);
    return !heads || watermark <= BigInt(heads[topic] ?? 0);
  }
}

/** Reads the starts that the database knows. */
export async function readStarts(database: Pick<Database, "query">): Promise<Starts> {
  const text = "SELECT id, postgres, heads FROM runtime.sync_starts ORDER BY number";
  return new Starts(await database.query({ name: "sync_starts", text }));
}

/**
 * Records that a server starts on this database, with the heads that it finds. A server does so before its first write,
 * and again when it finds another database server: that one may be restored, or a standby that was behind.
 */
export async function recordStart(tx: Pick<Database, "query">, context: Context): Promise<string> {
  const id = context.newId();
  // Two servers that start at once are one after the other here, so that the order of starts is that of their heads.
  await tx.query({ text: "LOCK TABLE runtime.sync_starts IN EXCLUSIVE MODE" });
  await tx.query({
    text: `WITH old AS (DELETE FROM runtime.sync_starts WHERE number <= (SELECT max(number) FROM runtime.sync_starts) - $2)
      INSERT INTO runtime.sync_starts (id, postgres, heads)
      SELECT $1, concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()),
          (SELECT oid FROM pg_database WHERE datname = current_database()), pg_relation_filenode('runtime.sync_starts')),
        coalesce(jsonb_object_agg(topic, next_watermark::text), '{}') FROM runtime.sync_topic_sequences`,
    values: [id, KEPT],
  });
  return id;
}

/** Forgets all earlier starts, so that every cursor is stale: for what cannot be noticed, such as rows changed by hand. */
export function rotateEpoch(database: Database, context: Context): Promise<string> {
  return database.interactive((tx) => rotateEpochWithin(tx, context));
}

/** The same as part of a transaction. */
export async function rotateEpochWithin(tx: Pick<Database, "query">, context: Context): Promise<string> {
  await tx.query({ text: "LOCK TABLE runtime.sync_starts IN EXCLUSIVE MODE" });
  await tx.query({ text: "DELETE FROM runtime.sync_starts" });
  return recordStart(tx, context);
}
