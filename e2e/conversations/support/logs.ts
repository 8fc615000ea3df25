import { testContext } from "@khala/test-support/kit/context";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { testRedis } from "@khala/test-support/redis/redis";
import { openPostgresLog } from "../../../packages/server/src/conversations/log/postgres/postgres_log.ts";
import { openRedisLog } from "../../../packages/server/src/conversations/log/redis/redis_log.ts";
import type { TwoLogs } from "./conversation_world.ts";

const TTL_MS = 3_600_000;
const PREFIX = "log:";

/** Two processes' handles on one database, each of which gets the other's wakeups. */
export async function twoPostgresLogs(): Promise<TwoLogs> {
  const database = await testDatabase();
  const context = await testContext();
  const to = (other: () => { onWakeup(stream: string): void }) => ({
    send: (name: string) => setImmediate(() => other().onWakeup(name.slice(PREFIX.length))),
  });
  const first = openPostgresLog(database.database, context, { ttlMs: TTL_MS, wakeups: to(() => second) });
  const second = openPostgresLog(database.database, context, { ttlMs: TTL_MS, wakeups: to(() => first) });
  return {
    logs: [first, second],
    async [Symbol.asyncDispose]() {
      await Promise.all([first.stop(), second.stop()]);
      await database[Symbol.asyncDispose]();
    },
  };
}

/** Two processes' handles on one Redis. */
export async function twoRedisLogs(): Promise<TwoLogs> {
  const redis = await testRedis();
  const context = await testContext();
  const open = () => openRedisLog(context, { url: redis.url, ttlMs: TTL_MS });
  const [first, second] = await Promise.all([open(), open()]);
  return {
    logs: [first, second],
    async [Symbol.asyncDispose]() {
      await Promise.all([first.stop(), second.stop()]);
      await redis[Symbol.asyncDispose]();
    },
  };
}
