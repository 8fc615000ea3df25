import { artifactKey } from "@khala/contracts";
import { Heard, makeTestArtifact, range, routeByTags } from "@khala/test-support/conformance/board/support";
import { done, retry, Worker } from "@khala/test-support/conformance/board/worker";
import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Artifact } from "../model/artifact.ts";
import { openPostgresBoard } from "./open_board.ts";

async function opened(strict = false) {
  const parts = new AsyncDisposableStack();
  const { database } = parts.use(await testDatabase({ poolSize: 8 }));
  const context = await testContext();
  const heard = new Heard();
  const board = await openPostgresBoard(database, context, {
    agents: [{ agent: "one", order: "key", strict }],
    route(artifact) {
      const { tasks, dead } = routeByTags(artifact);
      return { tasks: tasks.map((task) => ({ ...task, key: artifactKey(artifact) })), dead };
    },
    observer: heard,
    wakeups: { send() {} },
    pollMs: 50,
  });
  parts.defer(() => board.stop());
  return { database, board, heard, [Symbol.asyncDispose]: () => parts.disposeAsync() };
}

/** The versions of one artifact that has nothing but its id to be ordered by. */
function versions(count: number): Artifact[] {
  const first = makeTestArtifact({ to: "one", payload: 1 });
  return range(1, count).map((version) => ({ ...first, version, payload: version }));
}

test("a later version of an artifact waits for the first, whether that is waiting or running", async () => {
  await using server = await opened();
  const { board, heard } = server;
  const [waiting, running] = [versions(3), versions(3)];
  for (const version of waiting) await board.publish([version]);
  await board.publish([running[0]!]);
  const worker = new Worker("one", async (task) => {
    if (task.id === running[0]!.id) await worker.released;
    return done();
  });
  board.consume(worker);
  await eventually("the first is running", () => worker.runs.some(({ task }) => task.id === running[0]!.id));
  await board.publish([running[1]!]);
  await board.publish([running[2]!]);
  await eventually("the others are settled", () => heard.settlements.length === 3);
  worker.release();
  await eventually("all are settled", () => heard.settlements.length === 6);
  expect(worker.overlaps).toEqual([]);
  for (const [{ id }] of [waiting, running] as [Artifact][])
    expect(
      worker.runs
        .filter(({ task }) => task.artifacts[0].id === id)
        .map((run) => run.task.artifacts[0].version),
    ).toEqual([1, 2, 3]);
});

test("versions of an artifact published together run one after the other", async () => {
  await using server = await opened();
  const { board, heard } = server;
  const all = range(1, 5).flatMap(() => versions(4));
  const worker = new Worker("one", async () => {
    await new Promise(setImmediate);
    return done();
  });
  board.consume(worker);
  await board.publish(all);
  await eventually("all are settled", () => heard.settlements.length === all.length);
  expect(worker.overlaps).toEqual([]);
  for (const { id } of all.filter(({ version }) => version === 1))
    expect(
      worker.runs
        .filter(({ task }) => task.artifacts[0].id === id)
        .map((run) => run.task.artifacts[0].version),
    ).toEqual([1, 2, 3, 4]);
});

test.each([
  [true, [1, 1, 2]],
  [false, [1, 2, 1]],
])(
  "while the first version waits for its retry, with strict %s the later one waits too",
  async (strict, order) => {
    await using server = await opened(strict);
    const { board, heard } = server;
    const [first, second] = versions(2);
    const worker = new Worker("one", (task) =>
      task.id === first!.id && task.attempt === 1 ? retry(3_600_000) : done(),
    );
    board.consume(worker);
    await board.publish([first!]);
    await eventually("it waits for its retry", () => heard.settlements.length === 1);
    await board.publish([second!]);
    if (!strict) await eventually("the later one is settled", () => heard.settlements.length === 2);
    await server.database.query({ text: "UPDATE runtime.board_tasks SET due_at = now()" });
    await eventually("all are settled", () => heard.settlements.length === 3);
    expect(worker.payloads()).toEqual(order);
  },
);
