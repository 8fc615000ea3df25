import { randomUUID } from "node:crypto";
import { testContext } from "@khala/test-support/kit/context";
import { checkProperty } from "@khala/test-support/kit/property_runs";
import { redisHere, testRedis } from "@khala/test-support/redis/redis";
import { openRedisLog } from "../../../packages/server/src/conversations/log/redis/redis_log.ts";
import { keysOf } from "../../../packages/server/src/conversations/log/redis/scripts.ts";
import { Servers } from "../../../packages/server/src/conversations/test_support.ts";
import { histories } from "./history_commands.ts";
import { HistoryWorld, type LogStore } from "./history_world.ts";

/** The places of logs that are here. */
export const stores: [name: string, open: () => Promise<LogStore>][] = [["postgres", postgresLogs]];
if (redisHere().shared) stores.push(["redis", redisLogs]);

/**
 * After any history of messages, approvals, branches, posts, queued edits, kills, deploys, trims and lost logs, everybody sees
 * what the tables have, and no tool ran again. Returns how often each command did something.
 */
export async function checkHistories(
  name: string,
  store: LogStore,
  { search = false } = {},
): Promise<Map<string, number>> {
  await using servers = await Servers.open();
  const done = new Map<string, number>();
  await checkProperty({
    name: `histories of conversations on ${name}`,
    histories,
    async check(history, seed) {
      const world = await HistoryWorld.open(servers, store, `conv-${randomUUID()}`, seed);
      try {
        for (const command of history) await world.run(command);
        await world.settle();
      } finally {
        await world.close();
      }
      for (const [what, times] of world.done) done.set(what, (done.get(what) ?? 0) + times);
    },
    runs: 8,
    search,
  });
  return done;
}

async function postgresLogs(): Promise<LogStore> {
  return {
    async lose(servers, stream) {
      await servers.database.query({
        text: `WITH lost AS (DELETE FROM runtime.log_streams WHERE stream = $1 RETURNING log_id)
          DELETE FROM runtime.log_entries WHERE log_id IN (SELECT log_id FROM lost)`,
        values: [stream],
      });
    },
    async [Symbol.asyncDispose]() {},
  };
}

async function redisLogs(): Promise<LogStore> {
  const redis = await testRedis();
  const context = await testContext();
  return {
    open: () => openRedisLog(context, { url: redis.url, ttlMs: 3_600_000 }),
    // Other tests use the same Redis: FLUSHALL for this conversation.
    lose: async (_, stream) => void (await redis.client.del(...keysOf(stream))),
    [Symbol.asyncDispose]: () => redis[Symbol.asyncDispose](),
  };
}
