import { randomUUID } from "node:crypto";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { startRedis } from "@khala/test-support/redis/redis";
import { openTestLog } from "@khala/test-support/redis/redis_log";
import { expect, test } from "vitest";
import { scripted } from "../engines/scripted.ts";
import { kindsOf, Servers } from "../test_support.ts";

const ada = testViewer();

test.each([false, true])(
  "a run waits with its log in Redis, and continues after a decision; the log lost meanwhile: %s",
  async (lost) => {
    await using redis = await startRedis();
    await using log = await openTestLog(redis.url);
    await using servers = await Servers.open();
    const start = () => servers.start({ engine: scripted(), wrapLog: () => log });
    const [a, b] = [await start(), await start()];
    const convId = `conv-${randomUUID()}`;
    const { run_id } = await a.plane.chat(ada, { convId, message: "/approve the order" });
    const callId = `${run_id}-approve`;
    await until("it waits", async () => (await a.plane.run(ada, convId))?.status === "waiting");
    if (lost) await redis.client.flushall();
    const { run, messages } = await b.plane.state(ada, convId);
    expect(run).toMatchObject({ status: "waiting", waits_for: [{ tool_call_id: callId }] });
    expect(messages).toHaveLength(2);
    await b.plane.decideCalls(ada, convId, [{ callId, decision: { approve: true } }]);
    await until("the end", async () => (await a.plane.run(ada, convId))?.status === "finished");
    const { messages: all } = await a.plane.state(ada, convId);
    expect(all![1]!.parts).toMatchObject([
      { tool: { tool_call_id: callId, decision: { approved: true }, output: { done: "the order" } } },
      { text: "Done: the order" },
    ]);
    const kinds = await kindsOf(log, convId, run_id);
    // Words may be joined.
    const decided = kinds.indexOf("tool_approval_decided");
    expect([...new Set(kinds.slice(decided))]).toEqual([
      "tool_approval_decided",
      "run_resumed",
      "tool_result",
      "text_delta",
      "run_finished",
    ]);
  },
);
