import { randomUUID } from "node:crypto";
import { checkProperty } from "@khala/test-support/kit/property_runs";
import { redisHere } from "@khala/test-support/redis/redis";
import { type Command, ConversationWorld, commands, type TwoLogs } from "./conversation_world.ts";
import { twoPostgresLogs, twoRedisLogs } from "./logs.ts";

/** The backends that are here, and how each is opened. */
export const backends: [name: string, open: () => Promise<TwoLogs>][] = [["postgres", twoPostgresLogs]];
if (redisHere().shared) backends.push(["redis", twoRedisLogs]);

/** After any history of attaching, detaching, crashing and trimming, each transcript is the log's. */
export function checkConversations(backend: string, logs: TwoLogs, { search = false } = {}): Promise<void> {
  const check = async (history: readonly Command[], seed: number) => {
    const world = await ConversationWorld.open(randomUUID(), logs, seed);
    for (const command of history) await world.run(command);
    await world.settle();
  };
  return checkProperty({
    name: `conversations on ${backend}`,
    histories: commands,
    check,
    runs: 25,
    search,
  });
}
