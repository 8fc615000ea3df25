import { commitEach } from "../../../database/commit_each.ts";
import { type Database, isUncertain } from "../../../database/database.ts";
import type { Wakeups } from "../../../database/wakeups.ts";
import type { Context } from "../../../kit/context.ts";
import { GroupCommit, type Outcome } from "../../../kit/group_commit.ts";
import { checkAppend, checkStream } from "../append_checks.ts";
import {
  type Appended,
  type AppendOptions,
  type Bounds,
  type Entry,
  Fenced,
  type Log,
  type Page,
  type Retention,
  StreamGone,
  type Watcher,
} from "../log.ts";
import { Watchers } from "../watchers.ts";
import { BOOKMARK, BOUNDS, READ } from "./queries.ts";
import { purgeLeftover } from "./sweep.ts";
import { TailReader } from "./tail_reader.ts";

export interface PostgresLogOptions {
  /** How long a stream lives after its last append. */
  readonly ttlMs: number;
  /** Notifies the other processes, as `log:<stream>`. */
  readonly wakeups: Pick<Wakeups, "send">;
}

/** The log on Postgres. It has no timer and no connection of its own: callers poll `bounds` for lost wakeups. */
export interface PostgresLog extends Log {
  /** Another process sent a wakeup about this stream. */
  onWakeup(stream: string): void;
  /** Wakeups may have been lost. */
  recheck(): void;
}

interface Append {
  readonly stream: string;
  readonly entries: readonly string[];
  readonly options: AppendOptions;
  readonly bytes: number;
}

interface Bookmark {
  readonly stream: string;
  readonly seq: bigint;
}

interface BoundsRow {
  readonly epoch: string | null;
  readonly floor: bigint;
  readonly seq: bigint;
  readonly time: bigint;
}

interface Answer extends BoundsRow {
  readonly request: number;
  readonly outcome: "appended" | "fenced" | "gone" | "again";
}

interface PageRow extends BoundsRow {
  readonly entry: bigint | null;
  readonly at: bigint;
  readonly data: string;
}

const TRIM_BATCH = 1_000;
const ENTRY_OVERHEAD_BYTES = 100;

/** Opens the log. */
export function openPostgresLog(
  database: Database,
  context: Context,
  { ttlMs, wakeups }: PostgresLogOptions,
): PostgresLog {
  const watchers = new Watchers(context);
  const tailReader = new TailReader(database, context, watchers);
  const ttl = Math.max(1, Math.round(ttlMs));
  // Before the first append there: a restored database gives lost numbers again, and the append would look contiguous.
  database.onNewServer(async () => watchers.allMissed());

  const appends = new GroupCommit<Append, Bounds>({
    commit: (batch) => commitEach(context, batch, { commit, isIdempotent: false }),
    sizeOf: (item) => item.bytes,
    maxItems: 512,
    maxBytes: 8 << 20,
    maxWaitingBytes: 64 << 20,
    // One append per stream at a time, so that watchers get entries in order.
    exclusiveKey: (item) => item.stream,
  });
  const bookmarks = new GroupCommit<Bookmark, void>({
    commit: moveBookmarks,
    sizeOf: () => ENTRY_OVERHEAD_BYTES,
    maxItems: 1_000,
    maxBytes: 1 << 20,
    maxWaitingBytes: 16 << 20,
  });

  function notifyOthers(stream: string): void {
    wakeups.send(`log:${stream}`);
  }

  async function commit(batch: readonly Append[]): Promise<Outcome[]> {
    const now = Math.floor(context.clock.now());
    try {
      const answers = await database.query<Answer>({
        name: "log_append",
        text: "SELECT * FROM runtime.append_log($1, $2, $3, $4, $5, $6, $7, $8)",
        values: [
          now,
          ttl,
          batch.map((item) => item.stream),
          batch.map((item) => item.options.epoch ?? null),
          batch.map((item) => item.options.fence ?? null),
          batch.map(() => context.newId()),
          batch.flatMap((item, i) => item.entries.map(() => i + 1)),
          batch.flatMap((item) => item.entries),
        ],
      });
      const outcomes: Outcome[] = [];
      for (const answer of answers) {
        const item = batch[answer.request - 1]!;
        outcomes[answer.request - 1] =
          answer.outcome === "again" ? (await commit([item]))[0]! : outcomeOf(item, answer);
      }
      return outcomes;
    } catch (error) {
      // It may have been committed. The caller has to check, and watchers read again.
      if (isUncertain(error))
        for (const { stream } of batch) {
          watchers.missed(stream);
          notifyOthers(stream);
        }
      throw error;
    }
  }

  function outcomeOf({ stream, entries, options }: Append, answer: Answer): Outcome {
    if (answer.outcome === "gone") {
      const message = `The stream "${stream}" of epoch ${options.epoch} was deleted or has expired.`;
      return { error: new StreamGone(message) };
    }
    if (answer.outcome === "fenced") {
      const message = `A writer with a higher fencing token than ${options.fence} has appended to "${stream}". Stop writing.`;
      return { error: new Fenced(message) };
    }
    const bounds = boundsOf(answer)!;
    watchers.appended(stream, appendedOf(bounds, entries));
    notifyOthers(stream);
    return { ok: bounds };
  }

  async function moveBookmarks(batch: readonly Bookmark[]): Promise<Outcome[]> {
    const furthest = new Map<string, bigint>();
    for (const { stream, seq } of batch) if (seq > (furthest.get(stream) ?? -1n)) furthest.set(stream, seq);
    // A bookmark needs no fsync, and its row locks would delay appends.
    const noFsync = { text: "SELECT set_config('synchronous_commit', 'off', true)" };
    const values = [[...furthest.keys()], [...furthest.values()]];
    await database.transaction([noFsync, { name: "log_bookmark", text: BOOKMARK, values }]);
    return batch.map(() => ({ ok: undefined }));
  }

  return {
    async append(stream, entries, options = {}) {
      checkAppend(stream, entries);
      const bytes = entries.reduce((sum, entry) => sum + entry.length + ENTRY_OVERHEAD_BYTES, 0);
      return appends.write({ stream, entries, options, bytes });
    },

    async read(stream, after, limits): Promise<Page | undefined> {
      const rows = await database.query<PageRow>({
        name: "log_read",
        text: READ,
        values: [stream, after.seq, limits.entries, limits.bytes, after.time],
      });
      const bounds = rows[0] && boundsOf(rows[0]);
      if (!bounds) return undefined;
      const entries: Entry[] = [];
      for (const { entry, at, data } of rows)
        if (entry !== null) entries.push({ seq: entry, time: Number(at), data });
      return { ...bounds, entries };
    },

    async bounds(streams) {
      if (streams.length === 0) return [];
      const rows = await database.query<BoundsRow>({ name: "log_bounds", text: BOUNDS, values: [streams] });
      return rows.map(boundsOf);
    },

    async watch(stream, watcher: Watcher) {
      return watchers.add(stream, watcher);
    },

    async open(stream, generation) {
      checkStream(stream);
      const [row] = await database.query<BoundsRow>({
        name: "log_open",
        text: "SELECT * FROM runtime.open_log($1, $2, $3, $4)",
        values: [stream, generation ?? null, context.newId(), ttl],
      });
      if (!row) throw new StreamGone(`The stream "${stream}" belongs to a newer generation.`);
      return boundsOf(row)!;
    },

    async bookmark(stream, { seq }) {
      await bookmarks.write({ stream, seq });
      // It is a number in a row: no entries can be taken from it.
      return 0;
    },

    async trim(stream, { since = null, entries = null, bytes = null, upTo = null }: Nullable<Retention>) {
      let removed = 0;
      for (;;) {
        const [row] = await database.query<{ gone: number }>({
          name: "log_trim",
          text: "SELECT runtime.trim_log($1, $2, $3, $4, $5, $6) AS gone",
          values: [stream, since, entries, bytes, TRIM_BATCH, upTo],
        });
        removed += row!.gone;
        if (row!.gone < TRIM_BATCH) return removed;
      }
    },

    async delete(stream, generation) {
      const [row] = await database.query<{ log_id: bigint }>({
        name: "log_delete",
        text: `WITH gone AS (
            DELETE FROM runtime.log_streams WHERE stream = $1 AND generation <= coalesce($2, generation) RETURNING log_id
          )
          INSERT INTO runtime.log_leftovers (log_id) SELECT log_id FROM gone RETURNING log_id`,
        values: [stream, generation ?? null],
      });
      if (!row) return;
      watchers.missed(stream);
      notifyOthers(stream);
      await purgeLeftover(database, row.log_id);
    },

    onWakeup: (stream) => tailReader.onWakeup(stream),
    recheck: () => watchers.allMissed(),

    async stop() {
      await Promise.all([appends.drain(), bookmarks.drain(), tailReader.drain()]);
    },
  };
}

type Nullable<T> = { [K in keyof T]?: T[K] | null };

function boundsOf(row: BoundsRow): Bounds | undefined {
  if (row.epoch === null) return undefined;
  return { epoch: row.epoch, floor: row.floor, head: { seq: row.seq, time: Number(row.time) } };
}

function appendedOf({ epoch, head }: Bounds, texts: readonly string[]): Appended {
  const before = head.seq - BigInt(texts.length);
  return {
    epoch,
    entries: texts.map((data, i) => ({ seq: before + BigInt(i + 1), time: head.time, data })),
  };
}
