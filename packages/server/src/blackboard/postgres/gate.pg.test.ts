import {
  Heard,
  makeTestArtifact,
  numbered,
  range,
  routeByTags,
} from "@khala/test-support/conformance/board/support";
import { done, Worker } from "@khala/test-support/conformance/board/worker";
import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { openPostgresBoard } from "./open_board.ts";

const STRICT = { agent: "one", order: "key", strict: true } as const;

async function twoServers() {
  const parts = new AsyncDisposableStack();
  const { database } = parts.use(await testDatabase({ poolSize: 8 }));
  const context = await testContext();
  const heard = new Heard();
  const open = async () => {
    const board = await openPostgresBoard(database, context, {
      agents: [STRICT],
      route: routeByTags,
      observer: heard,
      wakeups: { send() {} },
      // No claim of these tests is lost because its lease ends.
      leaseMs: 600_000,
      pollMs: 50,
    });
    parts.defer(() => board.stop());
    return board;
  };
  return { ill: await open(), well: await open(), heard, [Symbol.asyncDispose]: () => parts.disposeAsync() };
}

test("releases claimed tasks when the gate stays closed, and another server runs them", async () => {
  await using servers = await twoServers();
  const { ill, well, heard } = servers;
  const first = new Worker(
    STRICT,
    () => {
      if (first.runs.length === 150) first.closeGate();
      return done();
    },
    100,
  );
  await well.publish(range(1, 300).flatMap((key) => numbered("one", `key ${key}`, 2)));
  ill.consume(first);
  await eventually("the gate is closed", () => first.runs.length >= 150);
  const second = new Worker(STRICT);
  well.consume(second);
  await eventually("all are settled", () => heard.settlements.length === 600);
  expect(first.runs.length).toBeLessThan(600);
  expect(second.runs.length).toBe(600 - first.runs.length);
  // Released tasks had not begun: this is no second attempt.
  expect(new Set(second.attempts())).toEqual(new Set([1]));
  for (const key of range(1, 300)) {
    const order = heard.settlements.filter(({ task }) => task.key === `key ${key}`);
    expect(order.map(({ task }) => task.artifacts[0].payload)).toEqual([1, 2]);
  }
  first.openGate();
});

test("a server with a closed gate claims nothing it publishes, and continues when the gate opens", async () => {
  await using servers = await twoServers();
  const { ill, heard } = servers;
  const worker = new Worker(STRICT);
  worker.closeGate();
  ill.consume(worker);
  await ill.publish(range(1, 5).map((payload) => makeTestArtifact({ to: "one", payload })));
  await eventually("the gate was asked", () => worker.gates > 0);
  expect(await ill.counts()).toEqual([{ agent: "one", waiting: 5, running: 0, dead: 0 }]);
  worker.openGate();
  await eventually("all are settled", () => heard.settlements.length === 5);
});

test("a gate that opens after a while lets tasks through", async () => {
  await using servers = await twoServers();
  const { ill, heard } = servers;
  const worker = new Worker(STRICT);
  worker.gate = async () => {
    for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
  };
  ill.consume(worker);
  await ill.publish(range(1, 20).map((payload) => makeTestArtifact({ to: "one", payload })));
  await eventually("all are settled", () => heard.settlements.length === 20);
});

test("releases a started task that still waits at a closed gate", async () => {
  await using servers = await twoServers();
  const { ill, well, heard } = servers;
  const first = new Worker(
    STRICT,
    (_task, run) =>
      new Promise((resolve) => {
        first.closeGate();
        run.signal.addEventListener("abort", () => resolve(done()), { once: true });
      }),
  );
  ill.consume(Object.assign(first, { begun: () => false }));
  await ill.publish(numbered("one", "key", 3));
  await eventually("the gate is closed", () => first.runs.length === 1);
  const second = new Worker(STRICT);
  well.consume(second);
  await eventually("all are settled", () => heard.settlements.length === 3);
  expect(second.payloads()).toEqual([1, 2, 3]);
  expect(second.attempts()).toEqual([1, 1, 1]);
  first.openGate();
});
