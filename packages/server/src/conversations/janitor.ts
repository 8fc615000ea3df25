import type { Database } from "../database/database.ts";
import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { ConversationRef } from "./conversation.ts";
import type { Files } from "./files/files.ts";
import type { Log } from "./log/log.ts";
import type { ConversationMetrics } from "./metrics.ts";

export interface JanitorOptions {
  /** The retention of each log. Ended runs are kept by age alone. */
  readonly retention: { readonly ageMs: number; readonly entries: number; readonly bytes: number };
  /** How long a conversation is kept after its last change; undefined: for ever. */
  readonly keepMs?: number | undefined;
  readonly everyMs: number;
  readonly metrics: Pick<ConversationMetrics, "trims" | "deletions">;
  readonly files?: Pick<Files, "erase" | "sweep">;
  /** Whether this process is the one that cleans up. */
  readonly active: () => boolean;
  /** The most conversations that one pass trims, and that it deletes. */
  readonly batch?: number;
}

/** The result of a pass. */
export interface JanitorPass {
  /** Conversations whose logs were checked. */
  readonly visited: number;
  /** Entries removed. */
  readonly trimmed: number;
  /** Conversations deleted. */
  readonly deleted: number;
  /** Whether there is more to do. */
  readonly more: boolean;
}

/** Applies the retention to logs, and deletes conversations that are older than the settings keep them. */
export interface Janitor extends Service {
  /** Runs one bounded pass now, on any process. */
  pass(): Promise<JanitorPass>;
}

const BATCH_SIZE = 4;
const RUNS_BATCH = 5_000;
/** Pauses this many times as long as it works, so that live traffic is not delayed. */
const PAUSE_FACTOR = 3;
/** After this time another server completes an unfinished removal: its server is lost. */
const UNFINISHED_MS = 60_000;

interface TrimmedConversation extends ConversationRef {
  /** The sequence up to which the active run is stored: readers need the entries after it. Null without a run. */
  readonly stored: bigint | null;
}

interface Removal extends ConversationRef {
  readonly fence: bigint;
}

const REF = 'org_id AS org, conv_id AS "convId", generation, log_name AS "logName"';

const STORED = `CASE WHEN c.run_id IS NOT NULL THEN coalesce((
  SELECT max(m.log_seq) FROM runtime.messages m WHERE m.org_id = c.org_id AND m.run_id = c.run_id), 0) END AS stored`;

/** Starts the janitor. */
export function startJanitor(
  database: Database,
  log: Log,
  context: Context,
  options: JanitorOptions,
): Janitor {
  const { retention, metrics, batch = 500 } = options;

  async function pass(signal: AbortSignal, pause: Pause): Promise<JanitorPass> {
    const trim = await trimLogs(signal, pause);
    const remove = await removeIdle(signal, pause);
    const moreFiles = (await options.files?.sweep()) ?? false;
    // A failure does not stop the other conversations; it is thrown after them.
    for (const failure of [...trim.failures, ...remove.failures]) throw failure;
    return {
      visited: trim.visited,
      trimmed: trim.trimmed,
      deleted: remove.deleted,
      more: trim.more || remove.more || moreFiles,
    };
  }

  async function trimLogs(signal: AbortSignal, pause: Pause) {
    const { at, conversations } = await conversationsToTrim(database, batch, options);
    const since = Math.floor(context.clock.now()) - retention.ageMs;
    const { entries, bytes } = retention;
    let trimmed = 0;
    let visited = 0;
    const failures = await inBatches(conversations, signal, {
      async each({ logName, stored }) {
        const upTo = stored === null ? {} : { upTo: stored };
        const gone = await log.trim(logName, { since, entries, bytes, ...upTo });
        trimmed += gone;
        if (gone > 0) metrics.trims.add(gone);
      },
      async done(batch) {
        visited += batch.length;
        await markTrimmed(database, batch, at);
      },
      pause,
    });
    const runs = await removeOldRuns(database, conversations, retention.ageMs);
    return { visited, trimmed, failures, more: conversations.length >= batch || runs === RUNS_BATCH };
  }

  async function removeIdle(signal: AbortSignal, pause: Pause) {
    const unfinished = await unfinishedRemovals(database, batch);
    const lost = await remove(unfinished, "unfinished", signal, pause);
    const limit = signal.aborted ? 0 : batch - unfinished.length;
    const { keepMs } = options;
    const begun = keepMs === undefined ? [] : await beginRemovals(database, keepMs, limit);
    const idle = await remove(begun, "age", signal, pause);
    return {
      deleted: lost.deleted + idle.deleted,
      failures: [...lost.failures, ...idle.failures],
      more: unfinished.length + begun.length >= batch,
    };
  }

  async function remove(removals: readonly Removal[], cause: string, signal: AbortSignal, pause: Pause) {
    let deleted = 0;
    const failures = await inBatches(removals, signal, {
      // The log first: a row without a log is found again, a log without a row is not.
      async each(removal) {
        await log.delete(removal.logName, removal.generation);
        await options.files?.erase(removal);
      },
      async done(batch) {
        const ended = await endRemovals(database, batch);
        deleted += ended;
        if (ended > 0) metrics.deletions.add(ended, { cause });
      },
      pause,
    });
    return { deleted, failures };
  }

  /** The pause between two batches. */
  function pacer(signal: AbortSignal): Pause {
    const { clock } = context;
    let since = clock.now();
    return async () => {
      const ms = (clock.now() - since) * PAUSE_FACTOR;
      if (ms > 0) await sleep(clock, Math.min(ms, options.everyMs), signal);
      since = clock.now();
    };
  }

  const loop = runLoop(context, "conversation janitor", {
    wake: new Wake(),
    idleMs: options.everyMs,
    step: async (signal) => options.active() && (await pass(signal, pacer(signal))).more,
  });
  return { pass: () => pass(new AbortController().signal, async () => {}), stop: () => loop.stop() };
}

type Pause = () => Promise<void>;

interface Work<T> {
  each(item: T): Promise<void>;
  /** Called with the items of a batch that succeeded. */
  done(batch: readonly T[]): Promise<void>;
  /** Between two batches. */
  readonly pause: Pause;
}

/** Works in batches until the signal aborts or a whole batch fails; returns the failures. */
async function inBatches<T>(items: readonly T[], signal: AbortSignal, work: Work<T>): Promise<unknown[]> {
  const failures: unknown[] = [];
  for (let at = 0; at < items.length && !signal.aborted; at += BATCH_SIZE) {
    const batch = items.slice(at, at + BATCH_SIZE);
    const outcomes = await Promise.allSettled(batch.map((item) => work.each(item)));
    for (const outcome of outcomes) if (outcome.status === "rejected") failures.push(outcome.reason);
    const done = batch.filter((_, i) => outcomes[i]!.status === "fulfilled");
    if (done.length === 0) break;
    await work.done(done);
    if (at + BATCH_SIZE < items.length) await work.pause();
  }
  return failures;
}

/** Conversations that changed since they were last trimmed, that run, or whose entries may have become too old. */
async function conversationsToTrim(
  database: Database,
  batch: number,
  { retention, everyMs }: Pick<JanitorOptions, "retention" | "everyMs">,
): Promise<{ at: string; conversations: TrimmedConversation[] }> {
  // First: changes after this moment are trimmed in a later pass.
  const [clock] = await database.query<{ at: string }>({ text: "SELECT now()::text AS at" });
  const changed = await database.query<TrimmedConversation>({
    name: "janitor_changed",
    text: `SELECT ${REF}, ${STORED} FROM runtime.conversations c
      WHERE (trimmed_at IS NULL OR trimmed_at < updated_at OR run_id IS NOT NULL)
        AND (trimmed_at IS NULL OR trimmed_at < updated_at OR trimmed_at < now() - $1 * interval '1 ms')
        AND removed_at IS NULL
      ORDER BY trimmed_at NULLS FIRST LIMIT $2`,
    values: [everyMs, batch],
  });
  const unchanged = await database.query<TrimmedConversation>({
    name: "janitor_unchanged",
    text: `SELECT ${REF}, ${STORED} FROM runtime.conversations c
      WHERE trimmed_at < now() - $1 * interval '1 ms' AND removed_at IS NULL
      ORDER BY trimmed_at LIMIT $2`,
    values: [Math.max(everyMs, retention.ageMs / 4), batch - changed.length],
  });
  const conversations = new Map([...changed, ...unchanged].map((each) => [each.logName, each]));
  return { at: clock!.at, conversations: [...conversations.values()] };
}

/** Skips locked rows: they are being changed, and are trimmed again later. */
async function markTrimmed(
  database: Database,
  trimmed: readonly ConversationRef[],
  at: string,
): Promise<void> {
  await database.query({
    name: "janitor_trimmed",
    text: `UPDATE runtime.conversations SET trimmed_at = $2::timestamptz WHERE log_name = ANY (ARRAY(
      SELECT log_name FROM runtime.conversations WHERE log_name = ANY ($1::text[]) FOR UPDATE SKIP LOCKED))`,
    values: [trimmed.map(({ logName }) => logName), at],
  });
}

/** Removes runs that ended before the retention, but never a conversation's last run. */
async function removeOldRuns(
  database: Database,
  conversations: readonly ConversationRef[],
  ageMs: number,
): Promise<number> {
  const rows = await database.query({
    name: "janitor_runs",
    text: `DELETE FROM runtime.conversation_runs WHERE run_id = ANY (ARRAY(
        SELECT r.run_id FROM unnest($1::text[], $2::text[]) AS c(org_id, conv_id)
        JOIN runtime.conversation_runs r ON r.org_id = c.org_id COLLATE "C" AND r.conv_id = c.conv_id COLLATE "C"
        WHERE r.ended_at < now() - $3 * interval '1 ms'
          AND r.run_id < (SELECT max(n.run_id) FROM runtime.conversation_runs n
            WHERE n.org_id = r.org_id AND n.conv_id = r.conv_id)
        LIMIT $4)) RETURNING 1`,
    values: [
      conversations.map(({ org }) => org),
      conversations.map(({ convId }) => convId),
      ageMs,
      RUNS_BATCH,
    ],
  });
  return rows.length;
}

async function unfinishedRemovals(database: Database, limit: number): Promise<Removal[]> {
  return database.query({
    name: "janitor_unfinished",
    text: `SELECT ${REF}, fence FROM runtime.conversations
      WHERE removed_at < now() - $1 * interval '1 ms' ORDER BY removed_at LIMIT $2`,
    values: [UNFINISHED_MS, limit],
  });
}

/** Makes them unusable, and raises the fencing token so that no server can still write to them. */
async function beginRemovals(database: Database, keepMs: number, limit: number): Promise<Removal[]> {
  return database.query({
    // A literal limit: with a parameter the planner sorts all idle rows. An upload is a change too; asked by max and not by
    // NOT EXISTS, for which the planner may read all files.
    text: `WITH idle AS MATERIALIZED (
        SELECT log_name FROM runtime.conversations c
        WHERE run_id IS NULL AND queued = 0 AND removed_at IS NULL AND updated_at < now() - $1 * interval '1 ms'
          AND coalesce((SELECT max(f.created_at) FROM runtime.files f
            WHERE f.org_id = c.org_id AND f.conv_id = c.conv_id), updated_at) < now() - $1 * interval '1 ms'
        ORDER BY updated_at LIMIT ${Math.floor(limit)} FOR UPDATE SKIP LOCKED
      )
      UPDATE runtime.conversations SET fence = fence + 1, removed_at = now()
      WHERE log_name = ANY (ARRAY(SELECT log_name FROM idle)) RETURNING ${REF}, fence`,
    values: [keepMs],
  });
}

/** Deletes the rows, and their runs, messages and files with them. */
async function endRemovals(database: Database, removals: readonly Removal[]): Promise<number> {
  const rows = await database.query({
    name: "janitor_end",
    text: `DELETE FROM runtime.conversations c USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS r(log_name, generation, fence)
      WHERE c.log_name = r.log_name COLLATE "C" AND c.generation = r.generation AND c.fence = r.fence
        AND c.removed_at IS NOT NULL RETURNING 1`,
    values: [
      removals.map(({ logName }) => logName),
      removals.map(({ generation }) => generation),
      removals.map(({ fence }) => fence),
    ],
  });
  return rows.length;
}
