import { until } from "@khala/test-support/clients/clients";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { testViewer } from "@khala/test-support/kit/viewer";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startConversations } from "@khala/test-support/servers/conversations";
import { expect, test } from "vitest";
import type {
  StartPosition,
  TimelineSubscriber,
} from "../../packages/server/src/conversations/timeline/attachment.ts";

const CALLER = testViewer({ org: "org-1", subject: "user-1" });
const CYCLES = 2_000;
const AT_ONCE = 50;

test("2,000 cycles of attaching and detaching leave no reader and no socket, and neither does a shutdown", async () => {
  await using database = await testDatabase();
  const clock = new JumpClock();
  await using server = await startConversations(database.url, {
    clock,
    conversations: { graceMs: 1_000 },
  });
  const ended: unknown[] = [];
  const member: TimelineSubscriber = { offer: () => true, end: (error) => ended.push(error) };
  const starts: StartPosition[] = [{ kind: "now" }, { kind: "replay", messages: 1 }];
  const attach = (i: number) =>
    server.plane.attach(CALLER, `conv-${i % 100}`, member, starts[i % starts.length]!);
  for (let i = 0; i < CYCLES; i += AT_ONCE) {
    const attached = await Promise.all(Array.from({ length: AT_ONCE }, (_, j) => attach(i + j)));
    for (const each of attached) each.close();
  }
  expect(ended).toEqual([]);
  expect(await server.metric("khala_conversation_sockets")).toBe(0);
  expect(await server.metric("khala_conversation_readers")).toBeLessThanOrEqual(100);
  clock.jump(1_001);
  await until("no reader", async () => (await server.metric("khala_conversation_readers")) === 0);

  await attach(0);
  expect(await server.metric("khala_conversation_readers")).toBe(1);
  await server.plane.stop();
  expect(await server.metric("khala_conversation_readers")).toBe(0);
});
