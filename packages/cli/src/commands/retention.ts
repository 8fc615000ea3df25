import { trimNow } from "@khala/server/operations";
import { ask } from "../database.ts";
import { type OperatingOptions, type Operation, operate, progressNotes } from "../operating.ts";
import { columns, print } from "../terminal.ts";

export interface RetentionOptions extends OperatingOptions {
  readonly dryRun?: boolean;
}

/** `khala retention`: trims the journals now, or says what would go. */
export async function retention(options: RetentionOptions): Promise<void> {
  const rows = await operate(options, (operation) => (options.dryRun ? count(operation) : trim(operation)));
  if (options.json) return print(JSON.stringify(Object.fromEntries(rows)));
  const verb = options.dryRun ? "would be removed" : "removed";
  print(columns([...rows].map(([topic, removed]) => [topic, `${removed} rows ${verb}`])));
}

function trim({ app, databaseUrl, signal, config }: Operation): Promise<ReadonlyMap<string, number>> {
  const progress = progressNotes();
  return trimNow({
    app,
    databaseUrl,
    signal,
    keepMs: config.KHALA_RETENTION_HOURS * 3_600_000,
    onProgress: ({ topic, removed }) => progress(() => `${topic}: ${removed} rows removed so far`),
  });
}

async function count({ app, databaseUrl, config }: Operation): Promise<ReadonlyMap<string, number>> {
  const old = await ask<{ topic: string; rows: number }>(databaseUrl, {
    text: `SELECT topic, count(*)::int AS rows FROM runtime.sync_stream_events
      WHERE inserted_at < now() - $1 * interval '1 hour' GROUP BY topic`,
    values: [config.KHALA_RETENTION_HOURS],
  });
  const counted = new Map(old.map(({ topic, rows }) => [topic, rows]));
  return new Map(app.models.all.map(({ topic }) => [topic, counted.get(topic) ?? 0]));
}
