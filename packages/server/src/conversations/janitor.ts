import { topicForConv } from "@khala/contracts";
import type { Database } from "../database/database.ts";
import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Log } from "./log/log.ts";
import type { ConversationMetrics } from "./metrics.ts";

export interface JanitorOptions {
  /** What is kept of each log; of runs that have ended only the age counts. */
  readonly keep: { readonly ageMs: number; readonly entries: number; readonly bytes: number };
  /** How long a conversation lives after its last run. */
  readonly ttlMs: number;
  readonly everyMs: number;
  readonly metrics: Pick<ConversationMetrics, "trims" | "deletions">;
  /** Whether it is this process's turn. */
  readonly active: () => boolean;
  /** How many conversations one pass looks at, and how many it deletes. */
  readonly batch?: number;
}

/** What a pass did. */
export interface JanitorPass {
  /** Conversations whose logs were looked at. */
  readonly visited: number;
  /** Entries that went. */
  readonly trimmed: number;
  /** Conversations that went. */
  readonly deleted: number;
  /** There is more to do. */
  readonly more: boolean;
}

/** Keeps logs small and removes conversations that nobody uses. */
export interface Janitor extends Service {
  /** One bounded pass now, whoever's turn it is. */
  pass(): Promise<JanitorPass>;
}

const AT_ONCE = 4;
const RUNS_AT_ONCE = 5_000;
/** For each moment of work it rests so many, or words on their way would wait while it cleans. */
const REST = 3;
/** After this long, a removal that was begun and not ended has lost its server. */
const UNFINISHED_MS = 60_000;

interface Removal {
  readonly convId: string;
  readonly fence: bigint;
}

/** Starts the janitor. */
export function startJanitor(
  database: Database,
  log: Log,
  context: Context,
  options: JanitorOptions,
): Janitor {
  const { keep, metrics, batch = 500 } = options;

  async function pass(signal: AbortSignal, rest: Rest): Promise<JanitorPass> {
    const trim = await trimLogs(signal, rest);
    const remove = await removeIdle(signal, rest);
    // One that cannot be cleaned does not keep the others from it; it is reported once they are done.
    for (const failure of [...trim.failures, ...remove.failures]) throw failure;
    return {
      visited: trim.visited,
      trimmed: trim.trimmed,
      deleted: remove.deleted,
      more: trim.more || remove.more,
    };
  }

  async function trimLogs(signal: AbortSignal, rest: Rest) {
    const { at, convIds } = await conversationsToTrim(database, batch, options);
    const since = Math.floor(context.clock.now()) - keep.ageMs;
    const { entries, bytes } = keep;
    let trimmed = 0;
    let visited = 0;
    const failures = await inParts(convIds, signal, {
      async each(convId) {
        const gone = await log.trim(topicForConv(convId), { since, entries, bytes });
        trimmed += gone;
        if (gone > 0) metrics.trims.add(gone);
      },
      async done(part) {
        visited += part.length;
        await markTrimmed(database, part, at);
      },
      rest,
    });
    const runs = await removeOldRuns(database, convIds, keep.ageMs);
    return { visited, trimmed, failures, more: convIds.length >= batch || runs === RUNS_AT_ONCE };
  }

  async function removeIdle(signal: AbortSignal, rest: Rest) {
    const unfinished = await unfinishedRemovals(database, batch);
    const lost = await remove(unfinished, "unfinished", signal, rest);
    const room = signal.aborted ? 0 : batch - unfinished.length;
    const begun = await beginRemovals(database, options.ttlMs, room);
    const idle = await remove(begun, "ttl", signal, rest);
    return {
      deleted: lost.deleted + idle.deleted,
      failures: [...lost.failures, ...idle.failures],
      more: unfinished.length + begun.length >= batch,
    };
  }

  async function remove(removals: readonly Removal[], cause: string, signal: AbortSignal, rest: Rest) {
    let deleted = 0;
    const failures = await inParts(removals, signal, {
      // The log goes first: a row without a log is found again, a log without a row never.
      each: ({ convId }) => log.delete(topicForConv(convId)),
      async done(part) {
        const ended = await endRemovals(database, part);
        deleted += ended;
        if (ended > 0) metrics.deletions.add(ended, { cause });
      },
      rest,
    });
    return { deleted, failures };
  }

  /** What the loop does between two parts. */
  function resting(signal: AbortSignal): Rest {
    const { clock } = context;
    let since = clock.now();
    return async () => {
      const ms = (clock.now() - since) * REST;
      if (ms > 0) await sleep(clock, Math.min(ms, options.everyMs), signal);
      since = clock.now();
    };
  }

  const loop = runLoop(context, "conversation janitor", {
    wake: new Wake(),
    idleMs: options.everyMs,
    step: async (signal) => options.active() && (await pass(signal, resting(signal))).more,
  });
  return { pass: () => pass(new AbortController().signal, async () => {}), stop: () => loop.stop() };
}

type Rest = () => Promise<void>;

interface Work<T> {
  each(item: T): Promise<void>;
  /** Told which of a part it worked for. */
  done(part: readonly T[]): Promise<void>;
  /** Between two parts. */
  readonly rest: Rest;
}

/** Works on a few at a time until the signal aborts or nothing works any more; answers what failed. */
async function inParts<T>(items: readonly T[], signal: AbortSignal, work: Work<T>): Promise<unknown[]> {
  const failures: unknown[] = [];
  for (let at = 0; at < items.length && !signal.aborted; at += AT_ONCE) {
    const part = items.slice(at, at + AT_ONCE);
    const outcomes = await Promise.allSettled(part.map((item) => work.each(item)));
    for (const outcome of outcomes) if (outcome.status === "rejected") failures.push(outcome.reason);
    const done = part.filter((_, i) => outcomes[i]!.status === "fulfilled");
    if (done.length === 0) break;
    await work.done(done);
    if (at + AT_ONCE < items.length) await work.rest();
  }
  return failures;
}

/** Those that have changed since they were last looked at, those that run, and those whose entries may be too old by now. */
async function conversationsToTrim(
  database: Database,
  batch: number,
  { keep, everyMs }: Pick<JanitorOptions, "keep" | "everyMs">,
): Promise<{ at: string; convIds: string[] }> {
  // Before the others: whatever changes from here on is looked at again.
  const [clock] = await database.query<{ at: string }>({ text: "SELECT now()::text AS at" });
  const changed = await database.query<{ convId: string }>({
    name: "janitor_changed",
    text: `SELECT conv_id AS "convId" FROM runtime.conversations
      WHERE (trimmed_at IS NULL OR trimmed_at < updated_at OR run_id IS NOT NULL)
        AND (trimmed_at IS NULL OR trimmed_at < updated_at OR trimmed_at < now() - $1 * interval '1 ms')
        AND removed_at IS NULL
      ORDER BY trimmed_at NULLS FIRST LIMIT $2`,
    values: [everyMs, batch],
  });
  const unchanged = await database.query<{ convId: string }>({
    name: "janitor_unchanged",
    text: `SELECT conv_id AS "convId" FROM runtime.conversations
      WHERE trimmed_at < now() - $1 * interval '1 ms' AND removed_at IS NULL
      ORDER BY trimmed_at LIMIT $2`,
    values: [Math.max(everyMs, keep.ageMs / 4), batch - changed.length],
  });
  return { at: clock!.at, convIds: [...new Set([...changed, ...unchanged].map(({ convId }) => convId))] };
}

/** Whoever holds a row has changed it: it is looked at again. */
async function markTrimmed(database: Database, convIds: readonly string[], at: string): Promise<void> {
  await database.query({
    name: "janitor_trimmed",
    text: `UPDATE runtime.conversations SET trimmed_at = $2::timestamptz WHERE conv_id = ANY (ARRAY(
      SELECT conv_id FROM runtime.conversations WHERE conv_id = ANY ($1::text[]) FOR UPDATE SKIP LOCKED))`,
    values: [convIds, at],
  });
}

/** Removes runs that ended before the oldest entry that is kept, but never a conversation's last. */
async function removeOldRuns(database: Database, convIds: readonly string[], ageMs: number): Promise<number> {
  const rows = await database.query({
    name: "janitor_runs",
    text: `DELETE FROM runtime.conversation_runs WHERE run_id = ANY (ARRAY(
        SELECT r.run_id FROM unnest($1::text[]) AS c(conv_id)
        JOIN runtime.conversation_runs r ON r.conv_id = c.conv_id COLLATE "C"
        WHERE r.ended_at < now() - $2 * interval '1 ms'
          AND r.run_id < (SELECT max(n.run_id) FROM runtime.conversation_runs n WHERE n.conv_id = r.conv_id)
        LIMIT $3)) RETURNING 1`,
    values: [convIds, ageMs, RUNS_AT_ONCE],
  });
  return rows.length;
}

async function unfinishedRemovals(database: Database, limit: number): Promise<Removal[]> {
  return database.query({
    name: "janitor_unfinished",
    text: `SELECT conv_id AS "convId", fence FROM runtime.conversations
      WHERE removed_at < now() - $1 * interval '1 ms' ORDER BY removed_at LIMIT $2`,
    values: [UNFINISHED_MS, limit],
  });
}

/** From here on nobody can use them, and the fence keeps out whoever still believes to have a run. */
async function beginRemovals(database: Database, ttlMs: number, limit: number): Promise<Removal[]> {
  return database.query({
    // The planner has to know the limit, or it sorts all that are idle.
    text: `WITH idle AS MATERIALIZED (
        SELECT conv_id FROM runtime.conversations
        WHERE run_id IS NULL AND queued = 0 AND removed_at IS NULL AND updated_at < now() - $1 * interval '1 ms'
        ORDER BY updated_at LIMIT ${Math.floor(limit)} FOR UPDATE SKIP LOCKED
      )
      UPDATE runtime.conversations SET fence = fence + 1, removed_at = now()
      WHERE conv_id = ANY (ARRAY(SELECT conv_id FROM idle)) RETURNING conv_id AS "convId", fence`,
    values: [ttlMs],
  });
}

/** Their runs go with them. */
async function endRemovals(database: Database, removals: readonly Removal[]): Promise<number> {
  const rows = await database.query({
    name: "janitor_end",
    text: `DELETE FROM runtime.conversations c USING unnest($1::text[], $2::bigint[]) AS r(conv_id, fence)
      WHERE c.conv_id = r.conv_id COLLATE "C" AND c.fence = r.fence AND c.removed_at IS NOT NULL RETURNING 1`,
    values: [removals.map(({ convId }) => convId), removals.map(({ fence }) => fence)],
  });
  return rows.length;
}
