import { randomUUID } from "node:crypto";
import { topicForConv } from "@khala/contracts";
import { Redis } from "ioredis";
import { APPEND, keysOf } from "../../../../packages/server/src/conversations/log/redis/scripts.ts";

const TTL_MS = "3600000";

/** The library's script by its hash on one connection, and nothing around it. */
export interface BareLog {
  append(conv: string, entry: string): Promise<void>;
  stop(): void;
}

/** Connects, and has the script loaded. */
export async function openBareLog(url: string): Promise<BareLog> {
  const redis = new Redis(url, { protocol: 2 });
  await redis.script("LOAD", APPEND.lua);
  return {
    async append(conv, entry) {
      const [stream, meta] = keysOf(topicForConv(conv));
      const args = ["", randomUUID(), String(Date.now()), TTL_MS, "", "PUBLISH", entry];
      await redis.evalsha(APPEND.sha, 2, stream, meta, ...args);
    },
    stop: () => redis.disconnect(),
  };
}
