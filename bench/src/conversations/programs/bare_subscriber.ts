import { topicForConv } from "@khala/contracts";
import { Redis } from "ioredis";
import { serve } from "../../kit/program.ts";
import { convId } from "../bench.ts";
import { tokenAge } from "../entries.ts";
import { Latencies, type Latency } from "../latencies.ts";

const CHUNK = 500;

let redis: Redis | undefined;
const latencies = new Latencies();

const methods = {
  /** Subscribes to all conversations on one connection. */
  async open({ url, conversations }: { url: string; conversations: number }): Promise<void> {
    redis = new Redis(url, { protocol: 2 });
    redis.on("message", (_, payload) => latencies.add(tokenAge(payload)));
    const channels = Array.from({ length: conversations }, (_, n) => topicForConv(convId(n)));
    for (let i = 0; i < channels.length; i += CHUNK) await redis.subscribe(...channels.slice(i, i + CHUNK));
  },

  async take({ expected }: { expected: number }): Promise<Latency> {
    return await latencies.take(expected);
  },
};

/** What this program can be asked. */
export type BareSubscriber = typeof methods;

serve(methods, () => redis?.disconnect());
