import { afterAll, beforeAll, describe } from "vitest";
import { type RedisCluster, redisHere, startRedisCluster, testRedis } from "../../../../e2e/support/redis.ts";
import { redisUnderTest } from "../../../../e2e/support/redis_log.ts";
import { logSuite } from "../conformance/log.ts";

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
