import { randomUUID } from "node:crypto";
import { topicForConv } from "@khala/contracts";
import { Redis } from "ioredis";
import { APPEND, keysOf } from "../../../../packages/server/src/log/redis_scripts.ts";
import { serve } from "../../kit/program.ts";
import { convId } from "../bench.ts";
import { tokenEntry } from "../entries.ts";
import { paced } from "../paced.ts";

const TTL_MS = "3600000";

let redis: Redis | undefined;
let next = 0;

const methods = {
  async open({ url }: { url: string }): Promise<void> {
    redis = new Redis(url, { protocol: 2 });
    await redis.script("LOAD", APPEND.lua);
  },

  /** The library's script by its hash, and nothing around it. */
  async run({
    conversations,
    rate,
    ms,
  }: {
    conversations: number;
    rate: number;
    ms: number;
  }): Promise<number> {
    const client = redis!;
    return await paced(rate, ms, async () => {
      const [stream, meta] = keysOf(topicForConv(convId(next++ % conversations)));
      const now = String(Date.now());
      const args = ["", randomUUID(), now, TTL_MS, "", "PUBLISH", tokenEntry()];
      await client.evalsha(APPEND.sha, 2, stream, meta, ...args);
    });
  },
};

/** What this program can be asked. */
export type BareAppend = typeof methods;

serve(methods, () => redis?.disconnect());
