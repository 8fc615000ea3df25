import { randomUUID } from "node:crypto";
import { redisHere } from "@khala/testing/redis/redis";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Command, ConversationWorld, commands, type TwoLogs } from "./support/conversation_world.ts";
import { twoPostgresLogs, twoRedisLogs } from "./support/logs.ts";

// KHALA_PROPERTY_RUNS makes it search longer, KHALA_PROPERTY_SEED repeats a search.
const RUNS = Number(process.env.KHALA_PROPERTY_RUNS ?? 60);
const SEED = Number(process.env.KHALA_PROPERTY_SEED ?? Date.now() % 2 ** 31);

const engines: [string, () => Promise<TwoLogs>][] = [["postgres", twoPostgresLogs]];
if (redisHere().shared) engines.push(["redis", twoRedisLogs]);

describe.each(engines)("on %s", (engine, open) => {
  let logs: TwoLogs;
  beforeAll(async () => {
    logs = await open();
  });
  afterAll(() => logs[Symbol.asyncDispose]());

  test("whoever attaches, detaches, crashes, is deaf, full or trimmed away: each transcript is the log's", {
    timeout: 120_000,
  }, async () => {
    console.log(`${engine}: KHALA_PROPERTY_SEED=${SEED} KHALA_PROPERTY_RUNS=${RUNS}`);
    const happens = async (history: readonly Command[]) => {
      const world = await ConversationWorld.open(randomUUID(), logs, SEED);
      for (const command of history) await world.run(command);
      await world.settle();
    };
    const result = await fc.check(fc.asyncProperty(commands, happens), {
      seed: SEED,
      numRuns: RUNS,
      endOnFailure: process.env.KHALA_PROPERTY_SHRINK !== "1",
    });
    if (!result.failed) return;
    const [history] = result.counterexample!;
    expect.fail(`${(result.errorInstance as Error)?.message}\n${JSON.stringify(history)}`);
  });
});
