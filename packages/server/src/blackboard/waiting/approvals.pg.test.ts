import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { RecordingBoard, testArtifact, testTask } from "@khala/test-support/kit/recording_board";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Context } from "../../kit/context.ts";
import { startOutbox } from "../publish/outbox.ts";
import { type Approvals, openApprovals } from "./approvals.ts";
import type { Sweep } from "./sweep.ts";

const HOUR = 3_600_000;

let own: TestDatabase;
let clock: ManualClock;
let context: Context;
let board: RecordingBoard;
let outbox: Sweep;
let approvals: Approvals;
beforeAll(async () => {
  own = await testDatabase();
});
beforeEach(async () => {
  await own.database.query({ text: "TRUNCATE runtime.board_approvals, runtime.board_outbox" });
  clock = new ManualClock();
  context = await testContext({ clock });
  board = new RecordingBoard();
  outbox = startOutbox(own.database, board, context, { pollMs: HOUR });
  approvals = openApprovals(own.database, context, outbox);
  return () => outbox.stop();
});
afterAll(() => own[Symbol.asyncDispose]());

const task = () => testTask("payer", testArtifact(context.newId()));
const pendingId = async () => (await approvals.list("acme"))[0]!.id!;
const empty = () =>
  until("the outbox is empty", async () => {
    await clock.advance(1_000);
    return (await own.database.query({ text: "SELECT FROM runtime.board_outbox" })).length === 0;
  });

test("lists a held task once, for its own org", async () => {
  const held = task();
  await Promise.all([approvals.hold(held), approvals.hold(held)]);
  expect(await approvals.list("zeta")).toEqual([]);
  expect(await approvals.list("acme")).toEqual([
    { id: expect.any(String), task: held, created_at: "2026-01-01T00:00:00.000Z" },
  ]);
});

test("runs an approved task as a replay, with the approver", async () => {
  const held = task();
  await approvals.hold(held);
  await approvals.decide("acme", await pendingId(), { approved: true }, "bob");
  await empty();
  expect(board.tasks).toEqual([{ ...held, approved_by: "bob", replay_id: expect.any(String) }]);
  expect(await approvals.list("acme")).toEqual([]);
});

test("ends a rejected task", async () => {
  await approvals.hold(task());
  await approvals.decide("acme", await pendingId(), { approved: false, reason: "too much" }, "bob");
  await empty();
  expect(board.tasks).toEqual([]);
  expect(await approvals.list("acme")).toEqual([]);
});

test("accepts a repeated decision, and refuses a different one with the name of who decided", async () => {
  await approvals.hold(task());
  const id = await pendingId();
  const approve = () => approvals.decide("acme", id, { approved: true }, "bob");
  await Promise.all([approve(), approve(), approve()]);
  await empty();
  expect(board.enqueued).toHaveLength(1);
  await expect(approvals.decide("acme", id, { approved: false }, "eve")).rejects.toMatchObject({
    code: "already_decided",
    meaning: { status: 409 },
    message: expect.stringContaining("approved by bob"),
  });
});

test("does not find a decision of another org, or one that was never held", async () => {
  await approvals.hold(task());
  for (const [org, id] of [
    ["zeta", await pendingId()],
    ["acme", "nonsense"],
  ] as const)
    await expect(approvals.decide(org, id, { approved: true }, "bob")).rejects.toMatchObject({
      code: "not_found",
    });
});

test.each(["before", "after"] as const)(
  "an approved task whose send failed %s the board had it is sent again as the same task",
  async (moment) => {
    board.failures.push(moment, moment);
    await approvals.hold(task());
    await approvals.decide("acme", await pendingId(), { approved: true }, "bob");
    await empty();
    expect(board.tasks).toHaveLength(1);
  },
);

test("the next server sends a decision that a dying server could not send", async () => {
  await outbox.stop();
  await approvals.hold(task());
  await approvals.decide("acme", await pendingId(), { approved: true }, "bob");
  outbox = startOutbox(own.database, board, context, { pollMs: HOUR });
  await empty();
  expect(board.tasks).toHaveLength(1);
});

test("holds a decided task again when it is replayed", async () => {
  const held = task();
  await approvals.hold(held);
  await approvals.decide("acme", await pendingId(), { approved: false }, "bob");
  await approvals.hold(held);
  expect(await approvals.list("acme")).toEqual([]);
  await approvals.hold({ ...held, replay_id: "r" });
  expect(await approvals.list("acme")).toHaveLength(1);
});

test("a decision refused by a rule leaves the approval pending", async () => {
  await approvals.hold(task());
  const id = await pendingId();
  const refuse = async () => {
    throw new Error("not you");
  };
  await expect(approvals.decide("acme", id, { approved: true }, "ada", refuse)).rejects.toThrow("not you");
  expect(await pendingId()).toBe(id);
  await approvals.decide("acme", id, { approved: true }, "bob", async () => {});
  expect(await approvals.list("acme")).toEqual([]);
});
