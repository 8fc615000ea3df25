import { logSuite } from "@khala/test-support/conformance/log/log";
import { type RedisCluster, redisHere, startRedisCluster, testRedis } from "@khala/test-support/redis/redis";
import { redisUnderTest } from "@khala/test-support/redis/redis_log";
import { afterAll, beforeAll, describe } from "vitest";

const here = redisHere();

describe.runIf(here.shared)("on one server", () => {
  logSuite("Redis", async () => {
    await using redis = await testRedis();
    return redisUnderTest(redis.url);
  });
});

describe.runIf(here.own)("on a cluster", () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster();
  });
  afterAll(() => cluster[Symbol.asyncDispose]());

  logSuite("a Redis cluster of three", () => redisUnderTest(cluster.url));
});
