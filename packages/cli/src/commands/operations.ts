import {
  parity as compare,
  copyConversationsNow,
  migrateNow,
  parityLines,
  reproject as rebuild,
  rotateEpoch,
  SCHEMA_VERSION,
  type TrimmedConversations,
  trimConversationsNow,
  trimNow,
} from "@khala/server/operations";
import { EXIT, Failure } from "../failure.ts";
import { type OperatingOptions, type Operation, operate, queryOnce, toJson } from "../local/operate.ts";
import { showProgress } from "../terminal/progress.ts";
import { columns, note, print } from "../terminal/terminal.ts";

export interface RetentionOptions extends OperatingOptions {
  readonly dryRun?: boolean;
}

interface Removed {
  readonly rows: ReadonlyMap<string, number>;
  readonly conversations: Partial<TrimmedConversations>;
}

/** `khala retention`: trims the journals and the conversations now, or counts what would be removed. */
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
    onProgress: ({ topic, removed }) => progress.update(() => `${topic}: ${removed} rows removed so far`),
  });
  const conversations = await trimConversationsNow({
    config,
    databaseUrl,
    signal,
    onProgress: ({ events }) => progress.update(() => `conversations: ${events} events removed so far`),
  });
  return { rows, conversations };
}

async function count({ app, databaseUrl, config }: Operation): Promise<Removed> {
  const old = await queryOnce<{ topic: string; rows: number }>(databaseUrl, {
    text: `SELECT topic, count(*)::int AS rows FROM runtime.sync_stream_events
      WHERE inserted_at < now() - $1 * interval '1 hour' GROUP BY topic`,
    values: [config.KHALA_RETENTION_HOURS],
  });
  const counted = new Map(old.map(({ topic, rows }) => [topic, rows]));
  const [idle] = await queryOnce<{ conversations: number }>(databaseUrl, {
    text: `SELECT count(*)::int AS conversations FROM runtime.conversations
      WHERE run_id IS NULL AND queued = 0 AND removed_at IS NULL AND updated_at < now() - $1 * interval '1 day'`,
    values: [config.KHALA_CHAT_KEEP_DAYS ?? null],
  });
  return {
    rows: new Map(app.models.all.map(({ topic }) => [topic, counted.get(topic) ?? 0])),
    conversations: { conversations: idle?.conversations ?? 0 },
  };
}

/** `khala epoch rotate`: makes every cursor stale, after a restore that Khala cannot detect. */
export async function rotate(options: OperatingOptions & { readonly yes?: boolean }): Promise<void> {
  if (!options.yes) {
    const what = "Every cursor becomes stale, and every client lists its topics again at the same time.";
    throw new Failure(`${what} Add --yes to confirm.`, EXIT.usage);
  }
  const epoch = await operate(options, ({ databaseUrl, signal }) => rotateEpoch({ databaseUrl, signal }));
  print(options.json ? JSON.stringify({ epoch }) : `The epoch is now ${epoch}.`);
}

/** `khala conversations copy`: copies every conversation from PostgreSQL to Redis, with its cursors. */
export async function copyConversations(options: OperatingOptions): Promise<void> {
  using progress = showProgress();
  const copied = await operate(options, ({ config, databaseUrl, signal }) => {
    if (!config.REDIS_URL)
      throw new Failure("REDIS_URL is not set. Set it to the Redis to copy to.", EXIT.usage);
    return copyConversationsNow({
      config,
      databaseUrl,
      signal,
      onProgress: ({ conversations, events }) =>
        progress.update(() => `${conversations} conversations with ${events} events so far`),
    });
  });
  if (options.json) print(JSON.stringify(copied));
  else print(`${copied.conversations} conversations, ${copied.events} new events copied.`);
  if (copied.refused.length === 0) return;
  note(`Not copied, because Redis has other conversations with the same names: ${copied.refused.join(", ")}`);
  process.exitCode = EXIT.found;
}

/** `khala parity`: compares the mirror with the read models. */
export async function parity(topics: readonly string[], options: OperatingOptions): Promise<void> {
  using progress = showProgress();
  const report = await operate(options, ({ app, databaseUrl, signal, config }) => {
    const { CONVEX_URL: url, CONVEX_MUTATION: mutation, CONVEX_QUERY: query, CONVEX_SECRET: secret } = config;
    if (!url) throw new Failure("No mirror is configured. Set CONVEX_URL.", EXIT.usage);
    return compare({
      app,
      databaseUrl,
      signal,
      convex: { url, mutation, query, secret },
      ...(topics.length > 0 && { topics }),
      onProgress: ({ topic, documents }) =>
        progress.update(() => `${topic}: ${documents} documents compared`),
    });
  });
  if (options.json) print(toJson(report));
  else for (const line of parityLines(report)) print(line);
  process.exitCode = report.equal ? EXIT.ok : EXIT.found;
}

/** `khala migrate`: creates or updates what servers need, for roles that may not do so themselves. */
export async function migrate(options: OperatingOptions & { readonly grant?: string }): Promise<void> {
  const { grant } = options;
  const topics = await operate(options, async ({ app, databaseUrl, signal }) => {
    await migrateNow({ app, databaseUrl, signal, ...(grant !== undefined && { grantTo: grant }) });
    return app.models.all.map(({ topic }) => topic);
  });
  if (options.json) return print(JSON.stringify({ schema: SCHEMA_VERSION, topics, granted: grant ?? null }));
  print(`The schema is at version ${SCHEMA_VERSION}, with ${topics.length} topics: ${topics.join(", ")}.`);
  if (grant !== undefined) print(`The role ${grant} may use them.`);
}

/** `khala reproject`: rebuilds the documents of a topic from the log. */
export async function reproject(
  topic: string,
  options: OperatingOptions & { readonly restart?: boolean },
): Promise<void> {
  using progress = showProgress();
  const done = await operate(options, ({ app, databaseUrl, signal, config }) =>
    rebuild({
      app,
      topic,
      databaseUrl,
      signal,
      inline: config.KHALA_PAYLOAD_MODE === "inline",
      restart: options.restart ?? false,
      onProgress: ({ phase, position, head, documents, differing }) =>
        progress.update(
          () =>
            phase === "folding"
              ? `applying: event ${position} of ${head}`
              : `comparing: ${documents} documents, ${differing} differ`,
          phase === "folding" && head > 0n ? Number(position) / Number(head) : undefined,
        ),
    }),
  );
  if (options.json) return print(toJson(done));
  print(`${topic}: ${done.documents} documents compared, ${done.differing} differed and were sent again.`);
}
