import type { ConversationRef } from "../../conversations/conversation.ts";
import { startJanitor } from "../../conversations/janitor.ts";
import { type Log, type Position, StreamGone } from "../../conversations/log/log.ts";
import { openPostgresLog } from "../../conversations/log/postgres/postgres_log.ts";
import { openRedisLog, type RedisLog } from "../../conversations/log/redis/redis_log.ts";
import { conversationMetrics } from "../../conversations/metrics.ts";
import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { Config } from "../config.ts";
import { openChatLog } from "../conversations.ts";
import { conversationSettings } from "../settings.ts";

/** The rows that retention removed from conversations. */
export interface TrimmedConversations {
  /** Events beyond a limit. */
  readonly events: number;
  /** Conversations that had expired. */
  readonly conversations: number;
}

/** Trims and removes conversations as the settings say, in bounded passes, until nothing is left to do. */
export async function trimConversations(
  config: Config,
  database: Database,
  context: Context,
  signal?: AbortSignal,
  onProgress?: (progress: TrimmedConversations) => void,
): Promise<TrimmedConversations> {
  const { retention, keepMs, janitorEveryMs: everyMs } = conversationSettings(config);
  // No wakeups are sent here: servers poll for removed rows.
  const log = await openChatLog(config, database, context, { send() {} });
  const metrics = conversationMetrics(context.telemetry.meter);
  const janitor = startJanitor(database, log, context, {
    retention,
    keepMs,
    everyMs,
    metrics,
    active: () => false,
  });
  try {
    let done: TrimmedConversations = { events: 0, conversations: 0 };
    for (let more = true; more; ) {
      signal?.throwIfAborted();
      const pass = await janitor.pass();
      more = pass.more;
      done = { events: done.events + pass.trimmed, conversations: done.conversations + pass.deleted };
      onProgress?.(done);
    }
    return done;
  } finally {
    await janitor.stop();
    await log.stop();
  }
}

/** The result of a copy. */
export interface CopiedConversations {
  readonly conversations: number;
  readonly events: number;
  /** Conversations that could not be copied, because Redis has others under their names. */
  readonly refused: readonly string[];
}

const LISTED_AT_ONCE = 500;
const PAGE = { entries: 500, bytes: 4 << 20 };

/** Copies every conversation from Postgres to the Redis of the settings, with its positions. It may be repeated, and adds what is new. */
export async function copyConversations(
  config: Config,
  database: Database,
  context: Context,
  signal?: AbortSignal,
  onProgress?: (progress: CopiedConversations) => void,
): Promise<CopiedConversations> {
  const { ttlMs } = conversationSettings(config);
  const from = openPostgresLog(database, context, { ttlMs, wakeups: { send() {} } });
  const to = await openRedisLog(context, { url: config.REDIS_URL ?? "", ttlMs });
  let conversations = 0;
  let events = 0;
  const refused: string[] = [];
  try {
    for (let last = ""; ; ) {
      const batch = await conversationsAfter(database, last);
      for (const conversation of batch) {
        signal?.throwIfAborted();
        try {
          events += await copyOne(from, to, conversation);
          conversations++;
        } catch (error) {
          if (!(error instanceof StreamGone)) throw error;
          refused.push(conversation.convId);
        }
        onProgress?.({ conversations, events, refused });
      }
      if (batch.length < LISTED_AT_ONCE) return { conversations, events, refused };
      last = batch.at(-1)!.logName;
    }
  } finally {
    await to.stop();
    await from.stop();
  }
}

async function copyOne(
  from: Log,
  to: RedisLog,
  { logName: stream, generation }: ConversationRef,
): Promise<number> {
  await from.open(stream, generation);
  const [there] = await to.bounds([stream]);
  let position: Position = there?.head ?? { seq: 0n, time: 0 };
  for (let copied = 0; ; ) {
    const page = await from.read(stream, position, PAGE);
    const last = page?.entries.at(-1);
    if (!page || !last) return copied;
    await to.adopt(stream, generation, page);
    copied += page.entries.length;
    position = last;
  }
}

async function conversationsAfter(database: Database, last: string): Promise<ConversationRef[]> {
  return database.query({
    text: `SELECT org_id AS org, conv_id AS "convId", generation, log_name AS "logName" FROM runtime.conversations
      WHERE log_name > $1 AND removed_at IS NULL ORDER BY log_name LIMIT $2`,
    values: [last, LISTED_AT_ONCE],
  });
}
