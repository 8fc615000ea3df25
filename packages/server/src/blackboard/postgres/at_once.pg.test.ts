import { Heard, makeTestArtifact, range, routeByTags } from "@khala/test-support/conformance/board/support";
import { dead, done, payloadOf, retry } from "@khala/test-support/conformance/board/worker";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Task } from "../model/task.ts";
import { openPostgresBoard } from "./open_board.ts";

const CONCURRENCY = 20;

async function opened() {
  const parts = new AsyncDisposableStack();
  const { database } = parts.use(await testDatabase());
  const context = await testContext();
  const heard = new Heard();
  const open = async () => {
    const board = await openPostgresBoard(database, context, {
      agents: [{ agent: "a", order: "none", strict: false }],
      route: routeByTags,
      observer: heard,
      wakeups: { send() {} },
      pollMs: 20,
    });
    parts.defer(() => board.stop());
    return board;
  };
  return { open, heard, [Symbol.asyncDispose]: () => parts.disposeAsync() };
}

test("settles tasks that end at once by their outcomes", async () => {
  await using server = await opened();
  const { heard } = server;
  const board = await server.open();
  const [publisher, count] = [await server.open(), 300];
  await publisher.publish(range(1, count).map((payload) => makeTestArtifact({ to: "a", payload })));
  const ran: Task[] = [];
  let together = 0;
  let most = 0;
  board.consume({
    agent: "a",
    order: "none",
    strict: false,
    concurrency: CONCURRENCY,
    gate: async () => {},
    handle(task) {
      ran.push(task);
      most = Math.max(most, ++together);
      if (together === 1) setImmediate(() => (together = 0));
      const n = payloadOf(task) as number;
      if (n % 11 === 0) return dead();
      return n % 7 === 0 && task.attempt === 1 ? retry(1) : done(makeTestArtifact({ payload: -n }));
    },
  });
  const by = (kind: string) => heard.settlements.filter(({ settlement }) => settlement.kind === kind);
  const [fatal, flaky] = [27, range(1, count).filter((n) => n % 7 === 0 && n % 11 !== 0).length];
  await until("all are settled", () => by("done").length === count - fatal && by("dead").length === fatal);
  expect(by("retry")).toHaveLength(flaky);
  expect(ran).toHaveLength(count + flaky);
  expect(most).toBeLessThanOrEqual(CONCURRENCY);
  const outputs = by("done").flatMap(({ settlement }) =>
    settlement.kind === "done" ? settlement.outputs : [],
  );
  expect(new Set(outputs.map(({ payload }) => payload)).size).toBe(count - fatal);
  expect(await board.counts()).toEqual([{ agent: "a", waiting: 0, running: 0, dead: fatal }]);
});

test("a stopping board settles tasks that ended at once, and another runs the rest", async () => {
  await using server = await opened();
  const { heard } = server;
  const [publisher, count] = [await server.open(), 400];
  await publisher.publish(range(1, count).map((payload) => makeTestArtifact({ to: "a", payload })));
  const ran = new Map<string, number>();
  const rules = { agent: "a", order: "none", strict: false, concurrency: CONCURRENCY } as const;
  const handle = (task: Task) => {
    ran.set(task.id, (ran.get(task.id) ?? 0) + 1);
    return done();
  };
  const first = await server.open();
  first.consume({ ...rules, gate: async () => {}, handle });
  await until("it has begun", () => ran.size > 0);
  await first.stop();
  expect(heard.settlements.length).toBe(ran.size);
  (await server.open()).consume({ ...rules, gate: async () => {}, handle });
  await until("all are settled", () => heard.settlements.length === count);
  expect([...ran.values()].every((times) => times === 1)).toBe(true);
  expect(ran.size).toBe(count);
});
