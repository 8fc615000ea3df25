import { testRedis } from "@khala/test-support/redis/redis";
import { openTestLog } from "@khala/test-support/redis/redis_log";
import { expect, test } from "vitest";
import { deleteDuringFirstMessage, Servers } from "./test_support.ts";

test.each(["before", "after", "never"] as const)(
  "on Redis, nothing of a deleted conversation reaches the next one of its id, which begins %s the late writer",
  async (next) => {
    await using redis = await testRedis();
    await using log = await openTestLog(redis.url);
    await using servers = await Servers.open();
    const { messages, left } = await deleteDuringFirstMessage(servers, next, () => log);
    expect(messages).toEqual(next === "never" ? [] : ["mine"]);
    if (next === "never") expect(left).toBeUndefined();
  },
);
