import { KhalaError } from "@khala/contracts";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { RecordingBoard, testArtifact, testTask } from "@khala/test-support/kit/recording_board";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Context } from "../../kit/context.ts";
import type { DeadLetter, Task } from "../model/task.ts";
import { startOutbox } from "../publish/outbox.ts";
import type { Sweep } from "../waiting/sweep.ts";
import { openReplays, type Replays } from "./replays.ts";

const HOUR = 3_600_000;

let own: TestDatabase;
let clock: ManualClock;
let context: Context;
let board: RecordingBoard;
let outbox: Sweep;
let replays: Replays;
beforeAll(async () => {
  own = await testDatabase({ poolSize: 8 });
});
beforeEach(async () => {
  await own.database.query({ text: "TRUNCATE runtime.board_replays, runtime.board_outbox" });
  clock = new ManualClock();
  context = await testContext({ clock });
  board = new RecordingBoard();
  outbox = startOutbox(own.database, board, context, { pollMs: HOUR });
  replays = open();
  return () => outbox.stop();
});
afterAll(() => own[Symbol.asyncDispose]());

/** A server's replays, with a schema that wants a number. */
function open(): Replays {
  return openReplays(own.database, context, outbox, (_type, payload) => {
    if (typeof payload === "number") return payload + 0.5;
    throw new KhalaError("invalid_request", "The payload must be a number.", { field: "payload" });
  });
}

function deadLetter(more: Partial<Task> = {}): DeadLetter & { task: Task } {
  const task = testTask("reviewer", testArtifact(context.newId()), { attempt: 5, ...more });
  return {
    id: context.newId(),
    agent: "reviewer",
    task,
    failure: { class: "Error", message: "no", kind: "fatal" },
    attempts: 5,
    failed_at: "2026-01-01T00:00:00.000Z",
    origin: "tasks/0@1",
  };
}

const empty = () =>
  until("the outbox is empty", async () => {
    await clock.advance(1_000);
    return (await own.database.query({ text: "SELECT FROM runtime.board_outbox" })).length === 0;
  });

test("replays a dead letter from its first attempt, under a replay id of its own", async () => {
  const dead = deadLetter();
  const { replay_id, status } = await replays.replay("reviewer", dead);
  expect(status).toBe("replayed");
  await empty();
  expect(board.tasks).toEqual([{ ...dead.task, attempt: 1, replay_id }]);
});

test("a double click replays once, and gets the first replay as its answer", async () => {
  const dead = deadLetter();
  const servers = [replays, open(), open()];
  const answers = await Promise.all(
    [...servers, ...servers].map((server) => server.replay("reviewer", dead)),
  );
  expect(answers.filter(({ status }) => status === "replayed")).toHaveLength(1);
  expect(new Set(answers.map(({ replay_id }) => replay_id)).size).toBe(1);
  await empty();
  expect(board.enqueued).toHaveLength(1);
  expect(await replays.replay("reviewer", dead)).toEqual({ ...answers[0], status: "already_replayed" });
});

test("a replay that fails is another dead letter, and can be replayed", async () => {
  const first = await replays.replay("reviewer", deadLetter());
  await empty();
  const second = await replays.replay("reviewer", { ...deadLetter(), task: board.tasks[0]! });
  await empty();
  expect(second.status).toBe("replayed");
  expect(board.tasks.map(({ replay_id }) => replay_id)).toEqual([first.replay_id, second.replay_id]);
});

test("checks an edited payload, and drops the approval", async () => {
  const dead = deadLetter({ approved_by: "bob" });
  await expect(replays.replay("reviewer", dead, { payload: "text" })).rejects.toThrow("must be a number");
  await replays.replay("reviewer", dead, { payload: 7 });
  await empty();
  const [task] = board.tasks;
  expect(task!.artifacts).toEqual([{ ...dead.task.artifacts[0], payload: 7.5 }]);
  expect(task).not.toHaveProperty("approved_by");
});

test("refuses to edit several artifacts, and to replay an undecodable one", async () => {
  const [artifact] = deadLetter().task.artifacts;
  const several = deadLetter({ artifacts: [artifact, artifact] });
  const invalid = { code: "invalid_request" };
  await expect(replays.replay("reviewer", several, { payload: 1 })).rejects.toMatchObject(invalid);
  const { task: _, ...raw } = deadLetter();
  await expect(replays.replay("reviewer", { ...raw, raw: "AAAA" })).rejects.toMatchObject(invalid);
});

test.each(["before", "after"] as const)(
  "a replay whose send failed %s the board had it is sent again with the same id",
  async (moment) => {
    board.failures.push(moment, moment);
    await replays.replay("reviewer", deadLetter());
    await empty();
    expect(board.tasks).toHaveLength(1);
  },
);

test("replays many page by page, each once even if two people ask", async () => {
  const letters = Array.from({ length: 450 }, () => deadLetter());
  await replays.replay("reviewer", letters[7]!);
  const { task: _, ...raw } = deadLetter();
  async function* pages(): AsyncGenerator<DeadLetter[]> {
    yield letters.slice(0, 250);
    yield [...letters.slice(250), raw];
  }
  const [mine, theirs] = await Promise.all([
    replays.replayMany("reviewer", pages()),
    open().replayMany("reviewer", pages()),
  ]);
  expect(mine.replayed + theirs.replayed).toBe(449);
  expect(mine.already_replayed + theirs.already_replayed).toBe(451);
  await empty();
  expect(board.enqueued).toHaveLength(450);
});

test("records by agent and org which dead letters were replayed", async () => {
  const [a, b] = [deadLetter(), deadLetter()];
  const { replay_id } = await replays.replay("reviewer", a);
  expect(await replays.statesOf("reviewer", "acme", [a.id, b.id])).toEqual(new Map([[a.id, replay_id]]));
  expect(await replays.statesOf("writer", "acme", [a.id])).toEqual(new Map());
  expect(await replays.statesOf("reviewer", "zeta", [a.id])).toEqual(new Map());
});
