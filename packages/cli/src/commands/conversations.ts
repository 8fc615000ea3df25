import { copyConversationsNow } from "@khala/server/operations";
import { EXIT, Failure } from "../failure.ts";
import { type OperatingOptions, operate } from "../operating.ts";
import { showProgress } from "../progress.ts";
import { note, print } from "../terminal.ts";

/** `khala conversations copy`: takes every conversation from PostgreSQL to Redis, with its positions. */
export async function copyConversations(options: OperatingOptions): Promise<void> {
  using progress = showProgress();
  const copied = await operate(options, ({ config, databaseUrl, signal }) => {
    if (!config.REDIS_URL) throw new Failure("Set REDIS_URL to the Redis that they go to.", EXIT.usage);
    return copyConversationsNow({
      config,
      databaseUrl,
      signal,
      onProgress: ({ conversations, events }) =>
        progress.tell(() => `${conversations} conversations with ${events} events so far`),
    });
  });
  if (options.json) print(JSON.stringify(copied));
  else print(`${copied.conversations} conversations, ${copied.events} new events copied.`);
  if (copied.refused.length === 0) return;
  note(`Redis has others under these names, and they were left alone: ${copied.refused.join(", ")}`);
  process.exitCode = EXIT.found;
}
