import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { testAgent, testArtifact, testTask } from "@khala/test-support/kit/recording_board";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import type { Agent } from "../model/agent.ts";
import type { Settlement, Task } from "../model/task.ts";
import { openReplays } from "../observe/replays.ts";
import { openPostgresBoard, type PostgresBoard } from "../postgres/open_board.ts";
import { createRouter } from "../publish/matching.ts";
import { startOutbox } from "../publish/outbox.ts";
import { openSchedule } from "../publish/schedule.ts";
import { openApprovals } from "./approvals.ts";
import { isGathered, openGather } from "./gather.ts";

const DONE: Settlement = { kind: "done", outputs: [] };
const DEAD: Settlement = { kind: "dead", failure: { class: "Error", message: "no", kind: "fatal" } };

let own: TestDatabase;
let context: Context;
let open: Service[];
beforeAll(async () => {
  own = await testDatabase({ poolSize: 10 });
});
beforeEach(async () => {
  context = await testContext();
  open = [];
  return async () => {
    for (const service of open.toReversed()) await service.stop();
  };
});
afterAll(() => own[Symbol.asyncDispose]());

/** A server with one agent whose tasks go to `handle`. */
async function serve(agent: Agent, handle: (task: Task) => Promise<Settlement>): Promise<PostgresBoard> {
  const agents = [{ agent: agent.name, order: agent.order, strict: agent.strict }];
  const observer = { published() {}, routed() {}, settled() {}, repeated() {} };
  const route = createRouter([agent], context);
  const options = { agents, route, observer, wakeups: { send() {} }, pollMs: 20 };
  const board = await openPostgresBoard(own.database, context, options);
  const consumer = { ...agents[0]!, concurrency: 4, gate: async () => {}, handle };
  open.push(board, board.consume(consumer));
  return board;
}

function outboxOf(board: PostgresBoard) {
  const outbox = startOutbox(own.database, board, context, { pollMs: 20 });
  open.push(outbox);
  return outbox;
}

const draft = (type: string, correlation?: string) =>
  testArtifact(context.newId(), { type, ...(correlation && { correlation_id: correlation }) });

test("batches of two servers contain each artifact once, and run once", async () => {
  const agent = testAgent("batcher", { consumes: "Batched", batch: { size: 5, timeout: 200 } });
  const ran: Task[] = [];
  const boards: PostgresBoard[] = [];
  for (let server = 0; server < 2; server++) {
    const handle = async (task: Task) => {
      if (isGathered(task)) ran.push(task);
      else await gather.add(agent, task);
      return DONE;
    };
    const board = await serve(agent, handle);
    const gather = openGather(own.database, board, context, { agents: [agent], pollMs: 50 });
    open.push(gather);
    boards.push(board);
  }
  const artifacts = Array.from({ length: 48 }, () => draft("Batched"));
  await Promise.all(artifacts.map((artifact, i) => boards[i % 2]!.publish([artifact])));
  const ids = () => ran.flatMap((task) => task.artifacts.map(({ id }) => id)).sort();
  await eventually("all have run", () => ids().length >= 48);
  expect(ids()).toEqual(artifacts.map(({ id }) => id).sort());
  expect(Math.max(...ran.map((task) => task.artifacts.length))).toBe(5);
});

test("a held task runs once it is approved, though the board has settled it", async () => {
  const agent = testAgent("payer", { consumes: "Payment", approval: true });
  const ran: Task[] = [];
  const board = await serve(agent, async (task) => {
    if (task.approved_by === undefined) await approvals.hold(task);
    else ran.push(task);
    return DONE;
  });
  const approvals = openApprovals(own.database, context, outboxOf(board));
  const payment = draft("Payment");
  await board.publish([payment]);
  const [held] = await eventually("it is held", async () => {
    const pending = await approvals.list("acme");
    return pending.length > 0 && pending;
  });
  expect(ran).toEqual([]);
  await approvals.decide("acme", held!.id!, { approved: true }, "bob");
  await eventually("it has run", () => ran.length > 0);
  expect(ran).toMatchObject([{ id: payment.id, approved_by: "bob", artifacts: [payment] }]);
});

test("a failed replay is a new dead letter, and an edited replay runs with the new payload", async () => {
  const agent = testAgent("parser", { consumes: "Text" });
  const ran: Task[] = [];
  const board = await serve(agent, async (task) => {
    ran.push(task);
    return task.artifacts[0].payload === "good" ? DONE : DEAD;
  });
  const replays = openReplays(own.database, context, outboxOf(board), (_, payload) => payload);
  const text = draft("Text", "c");
  await board.publish([text]);
  const letters = async (count: number) => {
    const { deadLetters } = await board.deadLetters("parser", {
      orgs: ["acme"],
      limit: 10,
      correlationId: "c",
    });
    return deadLetters.length === count && deadLetters;
  };
  const [first] = await eventually("it failed", () => letters(1));
  const clicks = await Promise.all([1, 2, 3].map(() => replays.replay("parser", first!)));
  expect(clicks.filter(({ status }) => status === "replayed")).toHaveLength(1);
  const [second] = await eventually("it failed again", () => letters(2));
  expect(second!.id).not.toBe(first!.id);
  await replays.replay("parser", second!, { payload: "good" });
  await eventually("it ran well", () => ran.at(-1)?.artifacts[0].payload === "good");
  expect(ran).toHaveLength(3);
  expect(await letters(2)).toBeTruthy();
});

test("drops a scheduled artifact that conflicts with a published one, and publishes the others", async () => {
  const agent = testAgent("clerk", { consumes: "Letter" });
  const ran: string[] = [];
  const board = await serve(agent, async (task) => {
    ran.push(task.artifacts[0].id);
    return DONE;
  });
  const schedule = openSchedule(own.database, context, outboxOf(board));
  const there = draft("Letter");
  await board.publish([there]);
  const later = draft("Letter");
  const notBefore = context.clock.now();
  const other = { ...there, payload: "something else" };
  await schedule.add([
    { artifact: other, notBefore },
    { artifact: later, notBefore },
  ]);
  await eventually("the other one is published", () => ran.includes(later.id));
  const waiting = () => own.database.query({ text: "SELECT FROM runtime.board_outbox" });
  await eventually("nothing waits", async () => (await waiting()).length === 0);
  expect(ran.sort()).toEqual([there.id, later.id].sort());
  expect(await board.get(there.org_id, there.id)).toEqual(there);
});

test("a task enqueued twice after a lost answer runs once", async () => {
  const agent = testAgent("twice", { consumes: "Twice" });
  const ran: Task[] = [];
  const board = await serve(agent, async (task) => {
    ran.push(task);
    return DONE;
  });
  const task = testTask("twice", draft("Twice"), { replay_id: "r" });
  await board.enqueue([task]);
  await eventually("it ran", () => ran.length > 0);
  await board.enqueue([task, { ...task, replay_id: "r2" }]);
  await eventually("the other ran", () => ran.some(({ replay_id }) => replay_id === "r2"));
  expect(ran.map(({ replay_id }) => replay_id)).toEqual(["r", "r2"]);
});
