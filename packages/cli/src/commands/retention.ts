import { type TrimmedConversations, trimConversationsNow, trimNow } from "@khala/server/operations";
import { ask } from "../database.ts";
import { type OperatingOptions, type Operation, operate } from "../operating.ts";
import { showProgress } from "../progress.ts";
import { columns, print } from "../terminal.ts";

export interface RetentionOptions extends OperatingOptions {
  readonly dryRun?: boolean;
}

interface Removed {
  readonly rows: ReadonlyMap<string, number>;
  readonly conversations: Partial<TrimmedConversations>;
}

/** `khala retention`: trims the journals and the conversations now, or says what would go. */
export async function retention(options: RetentionOptions): Promise<void> {
  const { rows, conversations } = await operate(options, (operation) =>
    options.dryRun ? count(operation) : trim(operation),
  );
  if (options.json) return print(JSON.stringify({ ...Object.fromEntries(rows), conversations }));
  const verb = options.dryRun ? "would be removed" : "removed";
  const lines = [...rows].map(([topic, removed]) => [topic, `${removed} rows ${verb}`]);
  const events = conversations.events === undefined ? "" : `${conversations.events} events and `;
  print(columns([...lines, ["conversations", `${events}${conversations.conversations} of them ${verb}`]]));
}

async function trim({ app, databaseUrl, signal, config }: Operation): Promise<Removed> {
  using progress = showProgress();
  const rows = await trimNow({
    app,
    databaseUrl,
    signal,
    keepMs: config.KHALA_RETENTION_HOURS * 3_600_000,
    onProgress: ({ topic, removed }) => progress.tell(() => `${topic}: ${removed} rows removed so far`),
  });
  const conversations = await trimConversationsNow({
    config,
    databaseUrl,
    signal,
    onProgress: ({ events }) => progress.tell(() => `conversations: ${events} events removed so far`),
  });
  return { rows, conversations };
}

async function count({ app, databaseUrl, config }: Operation): Promise<Removed> {
  const old = await ask<{ topic: string; rows: number }>(databaseUrl, {
    text: `SELECT topic, count(*)::int AS rows FROM runtime.sync_stream_events
      WHERE inserted_at < now() - $1 * interval '1 hour' GROUP BY topic`,
    values: [config.KHALA_RETENTION_HOURS],
  });
  const counted = new Map(old.map(({ topic, rows }) => [topic, rows]));
  const [idle] = await ask<{ conversations: number }>(databaseUrl, {
    text: `SELECT count(*)::int AS conversations FROM runtime.conversations
      WHERE run_id IS NULL AND queued = 0 AND removed_at IS NULL AND updated_at < now() - $1 * interval '1 hour'`,
    values: [config.KHALA_CHAT_TTL_HOURS],
  });
  return {
    rows: new Map(app.models.all.map(({ topic }) => [topic, counted.get(topic) ?? 0])),
    conversations: { conversations: idle?.conversations ?? 0 },
  };
}
