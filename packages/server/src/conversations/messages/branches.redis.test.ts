import { randomUUID } from "node:crypto";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { testRedis } from "@khala/test-support/redis/redis";
import { openTestLog } from "@khala/test-support/redis/redis_log";
import { expect, test } from "vitest";
import type { ChatCommand } from "../plane.ts";
import { engineOf, eventsOf, Servers } from "../test_support.ts";
import { messagesOf } from "../timeline/transcript.ts";

const ada = testViewer();

test("on Redis, a reader of the log has the same branch as the table", async () => {
  await using redis = await testRedis();
  await using log = await openTestLog(redis.url);
  await using servers = await Servers.open();
  let turns = 0;
  const engine = engineOf(async function* ({ message }) {
    yield { text_delta: { text: `${message} ${++turns}` } };
  });
  const { plane } = await servers.start({ engine, wrapLog: () => log });
  const convId = `conv-${randomUUID()}`;
  const messages = async () => {
    const { messages: all = [] } = await plane.state(ada, convId);
    expect(messagesOf(await eventsOf(log, convId))).toEqual(all);
    return all;
  };
  const ask = async (message: string, more: Partial<ChatCommand> = {}) => {
    const { run_id } = await plane.chat(ada, { convId, message, ...more });
    await until("the end", async () => (await plane.state(ada, convId)).last_run?.run_id === run_id);
    return messages();
  };
  const [hi, first] = await ask("Hi");
  await ask("", { regenerate: first!.message_id });
  const [hello] = await ask("Hello", { edit: hi!.message_id });
  expect(hello!.siblings).toEqual([hi!.message_id, hello!.message_id]);
  await plane.chooseBranch(ada, convId, first!.message_id!);
  expect((await messages()).map(({ parts }) => parts![0]!.text)).toEqual(["Hi", "Hi 1"]);
  await log.delete(`chat:${convId}`);
  expect((await plane.state(ada, convId)).messages!.map(({ parts }) => parts![0]!.text)).toEqual([
    "Hi",
    "Hi 1",
  ]);
});
