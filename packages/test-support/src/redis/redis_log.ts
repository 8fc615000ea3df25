import { randomUUID } from "node:crypto";
import { Cluster, Redis } from "ioredis";
import {
  openRedisLog,
  type RedisLog,
  type RedisLogOptions,
} from "../../../server/src/conversations/log/redis/redis_log.ts";
import { keysOf } from "../../../server/src/conversations/log/redis/scripts.ts";
import { type Clock, systemClock } from "../../../server/src/kit/clock.ts";
import type { Context } from "../../../server/src/kit/context.ts";
import type { LogUnderTest } from "../conformance/log/log.ts";
import { testContext } from "../kit/context.ts";

const HOUR = 3_600_000;

/** A stream that no other test uses. */
export function newStream(): string {
  return `chat:test-${randomUUID()}`;
}

/** A log as a server opens it; the test stops it. */
export async function openTestLog(
  url: string,
  { context, ...options }: Partial<RedisLogOptions> & { readonly context?: Context } = {},
): Promise<RedisLog & AsyncDisposable> {
  const log = await openRedisLog(context ?? (await testContext()), { url, ttlMs: HOUR, ...options });
  return { ...log, [Symbol.asyncDispose]: () => log.stop() };
}

/** The position of the group `ui` of a stream, and its pending entries. */
export async function groupOf(
  client: Redis | Cluster,
  stream: string,
): Promise<Record<string, unknown> | undefined> {
  const groups = (await client.xinfo("GROUPS", stream)) as unknown[][];
  const all = groups.map((group) =>
    Object.fromEntries(Array.from({ length: group.length / 2 }, (_, i) => [group[2 * i], group[2 * i + 1]])),
  );
  return all.find((group) => group.name === "ui");
}

/** The parts the conformance suite needs, on a server or a cluster. */
export async function redisUnderTest(url: string): Promise<LogUnderTest> {
  let set: number | undefined;
  const clock: Clock = { ...systemClock, now: () => set ?? systemClock.now() };
  const context = await testContext({ clock });
  const addresses = url.replace(/^.*:\/\//, "").split(",");
  const client = url.startsWith("redis-cluster:")
    ? new Cluster(addresses.map((address) => `redis://${address}`))
    : new Redis(url);
  const logs: RedisLog[] = [];
  const open = async () => {
    const log = await openRedisLog(context, { url, ttlMs: HOUR });
    logs.push(log);
    return log;
  };
  return {
    log: await open(),
    another: open,
    async expire(stream) {
      for (const key of keysOf(stream)) await client.pexpire(key, 0);
    },
    setClock(ms) {
      set = ms;
    },
    async bookmarkOf(stream) {
      const group = await groupOf(client, stream);
      return group && BigInt(String(group["last-delivered-id"]).split("-")[1]!);
    },
    async [Symbol.asyncDispose]() {
      for (const log of logs) await log.stop();
      client.disconnect();
    },
  };
}
