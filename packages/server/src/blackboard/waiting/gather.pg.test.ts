import { seeded, testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { RecordingBoard, testAgent, testArtifact, testTask } from "@khala/test-support/kit/recording_board";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import { uuidv7 } from "../../kit/ids.ts";
import type { Agent } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import { type Gather, incompleteJoin, isGathered, openGather } from "./gather.ts";

const HOUR = 3_600_000;

let own: TestDatabase;
let database: Database;
let clock: ManualClock;
let board: RecordingBoard;
let open: Gather[] = [];
beforeAll(async () => {
  own = await testDatabase({ poolSize: 8 });
  database = own.database;
});
beforeEach(async () => {
  await database.query({
    text: "TRUNCATE runtime.board_groups, runtime.board_members, runtime.board_gathered",
  });
  clock = new ManualClock();
  board = new RecordingBoard();
  return async () => {
    await Promise.all(open.map((gather) => gather.stop()));
    open = [];
  };
});
afterAll(() => own[Symbol.asyncDispose]());

/** A process, as far as its batches and joins are concerned. */
async function start(agent: Agent, options: { maxBytes?: number } = {}): Promise<Gather> {
  const context = await testContext({ clock });
  const gather = openGather(database, board, context, { agents: [agent], pollMs: HOUR, ...options });
  open.push(gather);
  return gather;
}

const draft = (more: Partial<Artifact> = {}) => testArtifact(uuidv7(clock)(), more);
const add = (gather: Gather, agent: Agent, ...artifacts: Artifact[]) =>
  artifacts.reduce(
    (before, artifact) => before.then(() => gather.add(agent, testTask(agent.name, artifact))),
    Promise.resolve(),
  );
const ids = (artifacts: readonly { id: string }[]) => artifacts.map(({ id }) => id);
const tasks = (count: number) =>
  until(`${count} tasks`, () => board.tasks.length >= count && board.tasks, { on: board });
const groups = async () =>
  (await database.query<{ n: bigint }>({ text: "SELECT count(*) AS n FROM runtime.board_groups" }))[0]!.n;
const noGroups = () => until("every group is finished", async () => (await groups()) === 0n);
/** Advances time step by step while the database works, until the condition holds. */
const passing = (what: string, stepMs: number, condition: () => unknown) =>
  until(what, async () => {
    await clock.advance(stepMs);
    return (await condition()) as boolean;
  });

const reviewer = testAgent("reviewer", { batch: { size: 3, timeout: 60_000 } });
const merger = testAgent("merger", { join: { types: ["Draft", "Review"], within: 60_000 } });

test("makes one task of a batch, with its artifacts in order of arrival", async () => {
  const gather = await start(reviewer);
  const artifacts = [draft(), draft(), draft(), draft()];
  await add(gather, reviewer, ...artifacts);
  const [task] = await tasks(1);
  expect(ids(task!.artifacts)).toEqual(ids(artifacts.slice(0, 3)));
  expect(task).toMatchObject({ agent: "reviewer", key: "acme", attempt: 1 });
  expect(isGathered(task!)).toBe(true);
  await until("the fourth waits in a group of its own", async () => (await groups()) === 1n);
});

test("sends a batch whose time is up, even with a single artifact", async () => {
  const gather = await start(reviewer);
  const artifact = draft();
  await add(gather, reviewer, artifact);
  await until("its time is known", () => clock.pending > 1);
  await clock.advance(60_000);
  const [task] = await tasks(1);
  expect(ids(task!.artifacts)).toEqual([artifact.id]);
  expect(isGathered(task!)).toBe(true);
});

test("a task of one artifact is not gathered, whatever its version", () => {
  const artifact = draft({ version: 2 });
  expect(isGathered(testTask("reviewer", artifact))).toBe(false);
  expect(isGathered(testTask("reviewer", artifact, { id: "0199-8" }))).toBe(false);
});

test("keeps characters of a payload that PostgreSQL's text cannot hold", async () => {
  const gather = await start(reviewer);
  const artifacts = ["\0", "\ud800", "plain"].map((payload) => draft({ payload }));
  await add(gather, reviewer, ...artifacts);
  const [task] = await tasks(1);
  expect(task!.artifacts).toEqual(artifacts);
});

test("never puts artifacts of two orgs into one group", async () => {
  const gather = await start(reviewer);
  const acme = [draft(), draft(), draft()];
  // The ids that another org chose are no reason to leave anything out.
  const zeta = acme.map((each) => ({ ...each, org_id: "zeta" }));
  for (const n of [0, 1, 2]) await add(gather, reviewer, acme[n]!, zeta[n]!);
  const sent = await tasks(2);
  expect(sent.map(({ artifacts }) => artifacts)).toEqual(expect.arrayContaining([acme, zeta]));
});

test("makes a batch per value of the agent's key", async () => {
  const keyed = testAgent("keyed", { batch: { size: 2, timeout: 60_000 }, key: ({ type }) => type });
  const gather = await start(keyed);
  for (const type of ["A", "B", "B", "A"])
    await gather.add(keyed, testTask("keyed", draft({ type }), { key: type }));
  const sent = await tasks(2);
  expect(sent.map(({ key, artifacts }) => [key, artifacts.map(({ type }) => type)]).sort()).toEqual([
    ["A", ["A", "A"]],
    ["B", ["B", "B"]],
  ]);
});

test("closes a batch when it reaches its bytes, however few artifacts it has", async () => {
  const large = testAgent("large", { batch: { size: 100, timeout: HOUR } });
  const gather = await start(large, { maxBytes: 10_000 });
  const artifacts = [5_000, 3_000, 4_000, 9_000].map((length) => draft({ payload: "x".repeat(length) }));
  await add(gather, large, ...artifacts);
  const sent = await tasks(2);
  expect(sent.map((task) => ids(task.artifacts))).toEqual([ids(artifacts.slice(0, 2)), [artifacts[2]!.id]]);
});

test("makes one task of a join in the order of its types, whichever came first", async () => {
  const gather = await start(merger);
  const review = draft({ type: "Review", correlation_id: "c" });
  const text = draft({ correlation_id: "c" });
  await add(gather, merger, review, draft({ correlation_id: "other" }), text);
  const [task] = await tasks(1);
  expect(ids(task!.artifacts)).toEqual([text.id, review.id]);
  expect(task!.key).toBe("c");
});

test("a join keeps the first of two artifacts of a type, in its newest version", async () => {
  const gather = await start(merger);
  const first = draft({ correlation_id: "c", payload: "one" });
  const newer = { ...first, version: 2, payload: "two" };
  const second = draft({ correlation_id: "c" });
  await add(gather, merger, first, second, newer, first);
  await add(gather, merger, draft({ type: "Review", correlation_id: "c" }));
  const [task] = await tasks(1);
  expect(task!.artifacts[0]).toEqual(newer);
});

test("makes a task of a join that is incomplete at its deadline, and a new join of later artifacts", async () => {
  const gather = await start(merger);
  const lonely = draft({ correlation_id: "c" });
  await add(gather, merger, lonely);
  await until("its time is known", () => clock.pending > 1);
  await clock.advance(60_000);
  await noGroups();
  const review = draft({ type: "Review", correlation_id: "c" });
  const text = draft({ correlation_id: "c" });
  await add(gather, merger, review, text);
  const [incomplete, complete] = await tasks(2);
  expect(ids(incomplete!.artifacts)).toEqual([lonely.id]);
  expect(incompleteJoin(merger, incomplete!)).toMatchObject({ class: "IncompleteJoin" });
  expect(ids(complete!.artifacts)).toEqual([text.id, review.id]);
  expect(incompleteJoin(merger, complete!)).toBeUndefined();
});

test("skips an artifact whose join function returns null, and throws what it throws", async () => {
  const by = ({ tags }: Artifact) => {
    if (tags.length > 1) throw new Error("too many tags");
    return tags[0] ?? null;
  };
  const joiner = testAgent("joiner", { join: { by, types: ["Draft", "Review"], within: 60_000 } });
  const gather = await start(joiner);
  await add(gather, joiner, draft(), draft({ type: "Review" }));
  expect(await groups()).toBe(0n);
  await expect(add(gather, joiner, draft({ tags: ["a", "b"] }))).rejects.toThrow("too many tags");
  await add(gather, joiner, draft({ tags: ["a"] }), draft({ tags: ["a"], type: "Review" }));
  expect((await tasks(1))[0]!.key).toBe("a");
});

test("adds a repeated artifact to one group only, also after that was sent", async () => {
  const gather = await start(reviewer);
  const artifacts = [draft(), draft(), draft()];
  await add(gather, reviewer, artifacts[0]!, ...artifacts);
  await tasks(1);
  await noGroups();
  await add(gather, reviewer, ...artifacts);
  expect(await groups()).toBe(0n);
});

test("timers survive a restart: overdue groups are sent at the start", async () => {
  const first = await start(reviewer);
  const artifact = draft();
  await add(first, reviewer, artifact);
  await first.stop();
  await clock.advance(HOUR);
  await start(reviewer);
  expect(ids((await tasks(1))[0]!.artifacts)).toEqual([artifact.id]);
});

test.each(["before", "after"] as const)(
  "a group whose task failed %s it was enqueued is sent again as the same task",
  async (moment) => {
    board.failures.push(moment, moment);
    const gather = await start(reviewer);
    await add(gather, reviewer, draft(), draft(), draft());
    await passing("it is finished", 1_000, async () => (await groups()) === 0n);
    expect(board.tasks).toHaveLength(1);
    expect(board.enqueued).toHaveLength(moment === "before" ? 1 : 3);
  },
);

test("another process sends the group of a dead process, as the same task", async () => {
  const gather = await start(reviewer);
  await add(gather, reviewer, draft(), draft());
  await gather.stop();
  const artifact = draft();
  // The process that completes it dies before it can send.
  const dead = await start(reviewer);
  board.refuses = () => true;
  await add(dead, reviewer, artifact);
  await dead.stop();
  board.refuses = () => false;
  await start(reviewer);
  await passing("another sends it", 1_000, () => board.tasks.length > 0);
  expect(board.tasks).toHaveLength(1);
  expect(board.tasks[0]!.artifacts).toHaveLength(3);
});

test("a group that can never be sent does not block the others", async () => {
  const keyed = testAgent("keyed", { batch: { size: 2, timeout: 60_000 }, key: ({ type }) => type });
  board.refuses = (item) => "key" in item && item.key === "Poison";
  const adder = await start(keyed);
  const types = ["Poison", "Poison", "A", "A", "B", "B"];
  await Promise.all(types.map((type) => adder.add(keyed, testTask("keyed", draft({ type }), { key: type }))));
  await passing("the others are sent", 10, () => board.tasks.length > 1);
  expect(board.tasks.map(({ key }) => key).sort()).toEqual(["A", "B"]);
});

test("puts each artifact into exactly one group of the right size, whichever process adds it", async () => {
  const sizes = {
    size: fc.integer({ min: 2, max: 5 }),
    count: fc.integer({ min: 1, max: 30 }),
    seed: fc.integer(),
  };
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(fc.record(sizes), async ({ size, count, seed }) => {
      const random = seeded(seed);
      board = new RecordingBoard();
      const agent = testAgent(`agent${++runs}`, { batch: { size, timeout: HOUR } });
      const processes = [await start(agent), await start(agent)];
      const artifacts = Array.from({ length: count }, () => draft());
      const deliveries = artifacts.flatMap((artifact) =>
        Array.from({ length: 1 + Math.floor(random() * 3) }, () => ({ artifact, at: random() })),
      );
      deliveries.sort((a, b) => a.at - b.at);
      await Promise.all(
        deliveries.map(({ artifact }) => add(processes[random() < 0.5 ? 0 : 1]!, agent, artifact)),
      );
      const full = Math.floor(count / size);
      if (full > 0) await tasks(full);
      const rest = await until("the rest waits in one group", async () => {
        const text = `SELECT m.artifact_id AS id FROM runtime.board_members m JOIN runtime.board_groups g USING (group_id)
          WHERE g.agent = $1`;
        const rows = await database.query<{ id: string }>({ text, values: [agent.name] });
        return rows.length === count % size && { rows };
      });
      expect(board.tasks).toHaveLength(full);
      for (const task of board.tasks) expect(task.artifacts).toHaveLength(size);
      const seen = [...board.tasks.flatMap((task) => ids(task.artifacts)), ...ids(rest.rows)];
      expect(seen.sort()).toEqual(ids(artifacts).sort());
      await Promise.all(processes.map((gather) => gather.stop()));
    }),
    { numRuns: 25 },
  );
});
