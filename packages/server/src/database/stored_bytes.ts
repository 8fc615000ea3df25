import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Database } from "./database.ts";

/** An org's stored bytes, by plane. */
export type StoredPlane = "sync" | "conversations" | "durable_streams" | "blackboard";

/** The quota `stored_bytes`: how much each org stores for good, on all servers together. */
export interface StoredBytes {
  /** Counts bytes that a request is about to store. Throws limit_exceeded when the org has reached its limit. */
  take(org: string, plane: StoredPlane, bytes: number): void;
}

/** A table whose rows are counted, as `t`. */
export interface CountedTable {
  readonly plane: StoredPlane;
  /** In the schema `runtime`. */
  readonly table: string;
  /** The bytes of a row, as an expression of SQL. */
  readonly bytes: string;
  /** A join that the expression needs. */
  readonly join?: string;
}

export interface StoredBytesOptions {
  /** 0 for none. */
  readonly limit: number;
  readonly tables: readonly CountedTable[];
  /** Blocks of a table that are read at once by a recount; 1,024 unless set. */
  readonly blocks?: number;
}

/** With what only its own server needs. */
export interface OpenStoredBytes extends StoredBytes, Service {
  /** Adds what was taken since the last call to the database, and reads what the orgs that took something store. */
  sync(): Promise<void>;
  /** Counts every row again. */
  recount(): Promise<void>;
  /** Recounts also count what a plane stores outside of the database, by org. */
  countAlso(plane: StoredPlane, count: () => ReadonlyMap<string, number>): void;
}

const SYNC_MS = 5_000;
const RECOUNT_CHECK_MS = 60_000;
/** The least time between two recounts. A long one is followed by a longer pause, so that it takes a twentieth of the time. */
const RECOUNT_MS = 600_000;
const SHARE = 20;
const PAUSE_MS = 50;
const MAX_ORGS = 10_000;
const RETRY_MS = 60_000;
const ADVICE =
  "Delete conversations and streams, or ask the operator for a shorter retention or a higher KHALA_MAX_STORED_BYTES_PER_ORG. What was deleted counts until the next recount, minutes later.";

/**
 * Opens the count of stored bytes. Requests are counted in memory and added every few seconds, so that no write waits for
 * it. Everything else, such as answers, outputs and deletions, is found by a recount, which one server does at a time.
 */
export function openStoredBytes(
  database: Database,
  context: Context,
  { limit, tables, blocks = 1_024 }: StoredBytesOptions,
): OpenStoredBytes {
  const planes = [...new Set(tables.map(({ plane }) => plane))];
  const elsewhere = new Map<StoredPlane, () => ReadonlyMap<string, number>>();
  /** The stored bytes of orgs, as far as this server knows; least recently used first. */
  const totals = new Map<string, number>();
  /** Bytes stored since the last sync, by org and plane. */
  let taken = new Map<string, Map<StoredPlane, number>>();

  const reject = context.quotas.add({
    name: "stored_bytes",
    of: "stored bytes",
    limit,
    async inUse(org) {
      await sync();
      return (await readTotals([org])).get(org) ?? 0;
    },
    async orgs(most) {
      const rows = await database.query<{ org: string }>({
        name: "stored_bytes_orgs",
        text: "SELECT org_id AS org FROM runtime.org_usage GROUP BY org_id ORDER BY sum(bytes) DESC LIMIT $1",
        values: [most],
      });
      return rows.map(({ org }) => org);
    },
  });

  async function readTotals(orgs: readonly string[]): Promise<Map<string, number>> {
    const rows = await database.query<{ org: string; bytes: string }>({
      name: "stored_bytes_read",
      text: "SELECT org_id AS org, sum(bytes)::text AS bytes FROM runtime.org_usage WHERE org_id = ANY ($1::text[]) GROUP BY org_id",
      values: [orgs],
    });
    return new Map(rows.map(({ org, bytes }) => [org, Number(bytes)]));
  }

  let last = Promise.resolve();
  /** One at a time: an older answer must not replace a newer one. */
  function sync(): Promise<void> {
    last = last.then(addAndRead, addAndRead);
    return last;
  }

  async function addAndRead(): Promise<void> {
    if (taken.size === 0) return;
    const adding = taken;
    taken = new Map();
    const rows = [...adding].flatMap(([org, byPlane]) => [...byPlane].map((each) => [org, ...each] as const));
    try {
      await database.query({
        name: "stored_bytes_add",
        // Sorted, so that servers cannot deadlock.
        text: `INSERT INTO runtime.org_usage AS o (org_id, plane, bytes, since_recount)
          SELECT u.org, u.plane, u.bytes, u.bytes FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(org, plane, bytes)
          WHERE u.bytes > 0 ORDER BY u.org COLLATE "C", u.plane COLLATE "C"
          ON CONFLICT (org_id, plane) DO UPDATE
            SET bytes = o.bytes + excluded.bytes, since_recount = o.since_recount + excluded.since_recount`,
        values: [rows.map(([org]) => org), rows.map(([, plane]) => plane), rows.map(([, , bytes]) => bytes)],
      });
    } catch (error) {
      for (const [org, plane, bytes] of rows) note(org, plane, bytes);
      throw error;
    }
    const stored = await readTotals([...adding.keys()]);
    for (const org of adding.keys()) {
      const since = [...(taken.get(org)?.values() ?? [])].reduce((sum, bytes) => sum + bytes, 0);
      remember(org, (stored.get(org) ?? 0) + since);
    }
  }

  function note(org: string, plane: StoredPlane, bytes: number): void {
    const byPlane = taken.get(org) ?? new Map<StoredPlane, number>();
    taken.set(org, byPlane.set(plane, (byPlane.get(plane) ?? 0) + bytes));
  }

  function remember(org: string, bytes: number): void {
    totals.delete(org);
    totals.set(org, bytes);
    if (totals.size > MAX_ORGS) totals.delete(totals.keys().next().value!);
  }

  /** The stored bytes of each org in a table, read in slices of the heap: neither an index nor a long transaction is needed. */
  async function countTable(
    { table, bytes, join = "" }: CountedTable,
    sums: Map<string, number>,
  ): Promise<void> {
    const [size] = await database.query<{ blocks: bigint }>({
      text: `SELECT pg_relation_size('runtime.${table}') / current_setting('block_size')::bigint AS blocks`,
    });
    for (let from = 0; from < Number(size!.blocks); from += blocks) {
      const rows = await database.query<{ org: string; bytes: string }>({
        text: `SELECT t.org_id AS org, sum(${bytes})::text AS bytes FROM runtime.${table} t ${join}
          WHERE t.ctid >= $1::text::tid AND t.ctid < $2::text::tid GROUP BY t.org_id`,
        values: [`(${from},0)`, `(${from + blocks},0)`],
      });
      for (const row of rows) sums.set(row.org, (sums.get(row.org) ?? 0) + Number(row.bytes ?? 0));
      await sleep(context.clock, PAUSE_MS, stopping.signal);
      if (stopping.signal.aborted) throw new Error("the server stops");
    }
  }

  async function recount(): Promise<void> {
    for (const plane of planes) {
      await database.query({
        name: "stored_bytes_begin",
        text: "UPDATE runtime.org_usage SET since_recount = 0 WHERE plane = $1 AND org_id IS NOT NULL AND since_recount <> 0",
        values: [plane],
      });
      const sums = new Map<string, number>();
      for (const table of tables) if (table.plane === plane) await countTable(table, sums);
      for (const [org, bytes] of elsewhere.get(plane)?.() ?? []) sums.set(org, (sums.get(org) ?? 0) + bytes);
      const orgs = [...sums].sort(([a], [b]) => (a < b ? -1 : 1));
      await database.transaction([
        {
          name: "stored_bytes_counted",
          text: `INSERT INTO runtime.org_usage AS o (org_id, plane, bytes, since_recount)
            SELECT u.org, $1, u.bytes, 0 FROM unnest($2::text[], $3::bigint[]) AS u(org, bytes)
            ORDER BY u.org COLLATE "C"
            ON CONFLICT (org_id, plane) DO UPDATE SET bytes = excluded.bytes + o.since_recount`,
          values: [plane, orgs.map(([org]) => org), orgs.map(([, bytes]) => bytes)],
        },
        {
          name: "stored_bytes_gone",
          text: `UPDATE runtime.org_usage SET bytes = since_recount
            WHERE plane = $1 AND bytes <> since_recount AND org_id <> ALL ($2::text[])`,
          values: [plane, orgs.map(([org]) => org)],
        },
      ]);
    }
  }

  const stopping = new AbortController();
  const syncing = runLoop(context, "stored bytes", {
    wake: new Wake(),
    idleMs: SYNC_MS,
    async step() {
      await sync();
      return false;
    },
  });
  const recounting = runLoop(context, "stored bytes recount", {
    wake: new Wake(),
    idleMs: RECOUNT_CHECK_MS,
    async step() {
      // If this server dies, another one makes the recount an hour later.
      const [claimed] = await database.query<{ isDue: boolean }>({
        name: "stored_bytes_claim",
        // A database without the row is new: there is nothing to recount yet.
        text: `INSERT INTO runtime.org_usage_recount AS r (next_at) VALUES (now() + $1 * interval '1 ms')
          ON CONFLICT (one) DO UPDATE SET next_at = now() + interval '1 hour' WHERE r.next_at <= now()
          RETURNING r.xmax <> 0 AS "isDue"`,
        values: [RECOUNT_MS],
      });
      if (!claimed?.isDue) return false;
      const from = context.clock.now();
      await recount();
      const pauseMs = Math.max(RECOUNT_MS, SHARE * (context.clock.now() - from));
      await database.query({
        name: "stored_bytes_next",
        text: "UPDATE runtime.org_usage_recount SET next_at = now() + $1 * interval '1 ms'",
        values: [pauseMs],
      });
      return false;
    },
  });

  return {
    sync,
    recount,
    countAlso: (plane, count) => void elsewhere.set(plane, count),
    take(org, plane, bytes) {
      const stored = totals.get(org) ?? 0;
      const isFull = limit > 0 && stored >= limit;
      // An org that is refused is asked for again, too: it may have deleted something.
      note(org, plane, isFull ? 0 : bytes);
      if (isFull) throw reject(org, RETRY_MS, ADVICE);
      remember(org, stored + bytes);
    },
    async stop() {
      stopping.abort();
      await Promise.all([syncing.stop(), recounting.stop()]);
      await sync().catch((error: Error) =>
        context.log.warn({ err: error.message }, "the last stored bytes wait for the next recount"),
      );
    },
  };
}
