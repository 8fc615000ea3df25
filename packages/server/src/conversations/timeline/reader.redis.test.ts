import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testRedis } from "@khala/test-support/redis/redis";
import { newStream, openTestLog } from "@khala/test-support/redis/redis_log";
import { expect, test } from "vitest";
import { systemClock } from "../../kit/clock.ts";
import { keysOf } from "../log/redis/scripts.ts";
import { conversationMetrics } from "../metrics.ts";
import { entryText } from "../runs/run_log.ts";
import { ConversationReader, EndOfTick } from "./reader.ts";

test("the first new entry reveals a store that lost its last entries and reuses their numbers", async () => {
  let now = Date.now();
  // No two entries within a millisecond: a store that starts again takes longer than that.
  const context = await testContext({ clock: { ...systemClock, now: () => now++ } });
  await using redis = await testRedis();
  await using log = await openTestLog(redis.url, { context });
  const stream = newStream();
  const keys = keysOf(stream);
  const say = (text: string) => log.append(stream, [entryText("run", { text_delta: { text } })]);
  const options = {
    log,
    stream,
    generation: 0n,
    convId: "c",
    metrics: conversationMetrics(context.telemetry.meter),
    recentBytes: 10_000,
    endOfTick: new EndOfTick(),
    isDeleted: async () => true,
  };
  const reader = await ConversationReader.start(context, options);
  const ended: string[] = [];
  reader.goLive({ deliver() {}, ended: (reason) => ended.push(reason) });

  await say("kept");
  const kept = await Promise.all(keys.map((key) => redis.client.dumpBuffer(key)));
  await say("lost");
  await until("the reader has both", () => reader.head.seq === 2n);
  for (const [i, key] of keys.entries()) await redis.client.restore(key, 0, kept[i]!, "REPLACE");
  await say("numbered as the lost one");
  await say("the next");
  await until("its followers are notified", () => ended.length > 0);
  expect([ended, reader.ended]).toEqual([["trimmed"], "trimmed"]);
});
