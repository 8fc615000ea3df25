import { randomUUID } from "node:crypto";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { startRedis } from "@khala/test-support/redis/redis";
import { openTestLog } from "@khala/test-support/redis/redis_log";
import { expect, test } from "vitest";
import { answerOf, eventsOf, GatedEngine, Servers } from "../test_support.ts";

const ada = testViewer();

test("FLUSHALL loses no finished message, the live run continues in a new log, and the next message works", async () => {
  // Its own: FLUSHALL would empty the one that all files share.
  await using redis = await startRedis();
  await using log = await openTestLog(redis.url);
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane } = await servers.start({ engine: engine.factory, wrapLog: () => log });
  const convId = `conv-${randomUUID()}`;
  const texts = async () =>
    (await plane.state(ada, convId)).messages!.map(({ parts, status }) => [parts![0]!.text, status]);
  const ask = async (message: string) => {
    await plane.chat(ada, { convId, message });
    await until("some text", async () => answerOf(await eventsOf(log, convId)).includes(`${message}: `));
  };
  const end = async (message: string) => {
    engine.release(message);
    await until("the end", async () => (await plane.run(ada, convId))?.status === "finished");
  };

  await ask("one");
  await end("one");
  await ask("two");
  await redis.client.flushall();
  // The rest is stored when its server notices the loss.
  expect((await texts()).slice(0, 3)).toEqual([
    ["one", "done"],
    ["one: done", "done"],
    ["two", "done"],
  ]);
  await end("two");
  await ask("three");
  await redis.client.flushall();
  await end("three");
  expect(await texts()).toEqual([
    ["one", "done"],
    ["one: done", "done"],
    ["two", "done"],
    ["two: done", "done"],
    ["three", "done"],
    ["three: done", "done"],
  ]);
});
