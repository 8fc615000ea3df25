import {
  Heard,
  makeTestArtifact,
  makeTestTask,
  range,
  routeByTags,
} from "@khala/testing/conformance/board/support";
import { done, retry, Worker } from "@khala/testing/conformance/board/worker";
import { seeded, testContext } from "@khala/testing/kit/context";
import { ManualClock } from "@khala/testing/kit/manual_clock";
import { until } from "@khala/testing/kit/until";
import { testDatabase } from "@khala/testing/postgres/test_database";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import { type Clock, systemClock } from "../../kit/clock.ts";
import { uuidv7 } from "../../kit/ids.ts";
import type { BoardAgent, BoardOptions } from "../board.ts";
import type { Task } from "../model/task.ts";
import { isGathered } from "../waiting/gather.ts";
import { openPostgresBoard, type PostgresBoardOptions } from "./open_board.ts";
import { makePartitions, sweepBoard } from "./partitions.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const THREE = batching("reviewer", 3);
const PLAIN = { agent: "plain", order: "key", strict: false } as const;

function batching(
  agent: string,
  size: number,
  more: Partial<NonNullable<BoardAgent["batch"]>> = {},
): BoardAgent {
  return { agent, order: "key", strict: false, batch: { size, timeoutMs: HOUR, byKey: false, ...more } };
}

/** A server of its own. It finds what others did by polling. */
async function server(
  database: Database,
  agents: readonly BoardAgent[],
  given: Partial<PostgresBoardOptions> & { readonly clock?: Clock } = {},
) {
  const heard = new Heard();
  const { clock = systemClock, ...options } = given;
  const board = await openPostgresBoard(database, await testContext({ clock }), {
    agents,
    route: routeByTags,
    routes: true,
    observer: heard,
    wakeups: { send() {} },
    pollMs: 50,
    retentionMs: 3_650 * DAY,
    ...options,
  });
  return { board, heard, [Symbol.asyncDispose]: () => board.stop() };
}

const drafts = (count: number, more: Parameters<typeof makeTestArtifact>[0] = {}) =>
  range(1, count).map((payload) => makeTestArtifact({ to: "reviewer", payload, ...more }));
const payloads = ({ artifacts }: Task) => artifacts.map(({ payload }) => payload);
const runs = (worker: Worker, count: number) =>
  until(`${count} runs`, () => worker.runs.length >= count && worker.runs.map(({ task }) => task));
const waiting = async (database: Database) => {
  const text = `SELECT (SELECT coalesce(sum(members), 0) FROM runtime.board_arrivals)::int AS fresh,
    (SELECT coalesce(sum(cardinality(ids)), 0) FROM runtime.board_batches)::int AS kept`;
  return (await database.query<{ fresh: number; kept: number }>({ text }))[0]!;
};
const kept = (database: Database, count: number) =>
  until(`${count} wait`, async () => {
    const now = await waiting(database);
    return now.fresh === 0 && now.kept === count;
  });

test("what comes in close succession is looked at together", async () => {
  await using own = await testDatabase();
  let looks = 0;
  const database: Database = {
    ...own.database,
    interactive(work, mode) {
      looks++;
      return own.database.interactive(work, mode);
    },
  };
  const clock = new ManualClock();
  await using one = await server(database, [batching("reviewer", 100)], { clock });
  one.board.consume(new Worker("reviewer"));
  const artifacts = drafts(20);
  await one.board.publish(artifacts.slice(0, 1));
  await kept(own.database, 1);
  looks = 0;
  for (const artifact of artifacts.slice(1)) await one.board.publish([artifact]);
  await clock.advance(20);
  await kept(own.database, 20);
  // They were taken together. Another look may have found that there are no more.
  expect(looks).toBeLessThanOrEqual(2);
});

test("a batch is one task with the whole artifacts in the order of arrival, and the rest waits", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [THREE]);
  const worker = new Worker("reviewer");
  one.board.consume(worker);
  const artifacts = drafts(8);
  await one.board.publish(artifacts.slice(0, 5));
  await one.board.publish(artifacts.slice(5));
  const tasks = await runs(worker, 2);
  expect(tasks.map(({ artifacts: of }) => of)).toEqual([artifacts.slice(0, 3), artifacts.slice(3, 6)]);
  expect(tasks.every(isGathered)).toBe(true);
  expect(tasks[0]).toMatchObject({ agent: "reviewer", key: "acme", attempt: 1 });
  await kept(own.database, 2);
  expect(await one.board.publish(artifacts)).toEqual(artifacts.map(() => "duplicate"));
  expect(await waiting(own.database)).toEqual({ fresh: 0, kept: 2 });
});

test("a batch whose time is up is sent with what is there, also after a restart, and if that is one artifact", async () => {
  await using own = await testDatabase();
  const clock = new ManualClock();
  const [artifact] = drafts(1);
  {
    await using first = await server(own.database, [THREE], { clock });
    first.board.consume(new Worker("reviewer"));
    await first.board.publish([artifact!]);
    await kept(own.database, 1);
  }
  await clock.advance(HOUR);
  await using second = await server(own.database, [THREE], { clock });
  const worker = new Worker("reviewer");
  second.board.consume(worker);
  const [task] = await runs(worker, 1);
  expect(task!.artifacts).toEqual([artifact]);
  expect(isGathered(task!)).toBe(true);
});

test("orgs are never in one batch, nor are the keys of an agent that has some", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [batching("reviewer", 2, { byKey: true })]);
  const worker = new Worker("reviewer");
  one.board.consume(worker);
  const of = (org_id: string, partition_key: string) =>
    drafts(1, { org_id, partition_key, payload: `${org_id} ${partition_key}` })[0]!;
  await one.board.publish([
    of("acme", "a"),
    of("acme", "b"),
    of("zeta", "a"),
    of("zeta", "a"),
    of("acme", "a"),
  ]);
  const tasks = await runs(worker, 2);
  expect(tasks.map(payloads).sort()).toEqual([
    ["acme a", "acme a"],
    ["zeta a", "zeta a"],
  ]);
  await kept(own.database, 1);
});

test("a batch never has much more than its bytes, however few artifacts that is", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [batching("reviewer", 100)]);
  const worker = new Worker("reviewer");
  one.board.consume(worker);
  const sizes = [300, 150, 200, 400].map((kib) => drafts(1, { payload: "x".repeat(kib << 10) })[0]!);
  await one.board.publish(sizes);
  const tasks = await runs(worker, 2);
  expect(tasks.map(({ artifacts }) => artifacts.length)).toEqual([2, 1]);
  await kept(own.database, 1);
});

test("a batch that is tried again, by whomever, is the same task", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [THREE]);
  await using two = await server(own.database, [THREE]);
  const first = new Worker("reviewer", (task) => (task.attempt < 3 ? retry(1) : done()));
  one.board.consume(first);
  two.board.consume(first);
  const artifacts = drafts(3);
  await one.board.publish(artifacts);
  const tasks = await runs(first, 3);
  expect(tasks.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
  expect(new Set(tasks.map(({ id }) => id)).size).toBe(1);
  for (const task of tasks) expect(task.artifacts).toEqual(artifacts);
});

test("batches of one key follow each other, unless the agent has no order", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [THREE]);
  const worker = new Worker("reviewer", async () => {
    await new Promise(setImmediate);
    return done();
  });
  one.board.consume(worker);
  await one.board.publish(drafts(60));
  const tasks = await runs(worker, 20);
  expect(tasks.flatMap(payloads)).toEqual(range(1, 60));
  expect(worker.overlaps).toEqual([]);
});

test("what a settlement publishes, and what a process publishes that does not route, goes into batches", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [THREE, PLAIN]);
  await using silent = await server(own.database, [], { routes: false });
  one.board.consume(
    new Worker("plain", (task) => done(makeTestArtifact({ to: "reviewer", payload: task.key }))),
  );
  const worker = new Worker("reviewer");
  one.board.consume(worker);
  await one.board.publish([
    makeTestArtifact({ to: ["plain", "reviewer"], partition_key: "k", payload: "first" }),
  ]);
  await silent.board.publish([makeTestArtifact({ to: "reviewer", payload: "second" })]);
  const [task] = await runs(worker, 1);
  expect(payloads(task!).sort()).toEqual(["first", "k", "second"]);
});

test("what is published together is divided: each agent has its own, in batches or one by one", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [THREE, PLAIN]);
  const [batched, plain] = [new Worker("reviewer"), new Worker("plain")];
  for (const worker of [batched, plain]) one.board.consume(worker);
  const of = (payload: number, ...to: string[]) => makeTestArtifact({ to, payload, partition_key: "k" });
  await one.board.publish([
    of(1, "reviewer"),
    of(2, "plain"),
    of(3, "reviewer", "plain"),
    of(4),
    of(5, "reviewer"),
  ]);
  const [task] = await runs(batched, 1);
  expect(payloads(task!)).toEqual([1, 3, 5]);
  expect((await runs(plain, 2)).flatMap(payloads)).toEqual([2, 3]);
});

test("while artifacts wait for the router, a batch has each of them once", async () => {
  await using own = await testDatabase();
  await using silent = await server(own.database, [], { routes: false });
  const artifacts = drafts(6);
  await silent.board.publish(artifacts.slice(0, 3));
  await using one = await server(own.database, [THREE]);
  await one.board.publish(artifacts.slice(3));
  const worker = new Worker("reviewer");
  one.board.consume(worker);
  const tasks = await runs(worker, 2);
  expect(tasks.flatMap(payloads).sort()).toEqual(range(1, 6));
  await kept(own.database, 0);
});

test("what goes alone is given to the agent as a task of its own", async () => {
  await using own = await testDatabase();
  const goesAlone: BoardOptions["goesAlone"] = ({ agent, org, correlationId, arrivedAt }) =>
    arrivedAt > 0 && `${agent} ${org} ${correlationId ?? "none"}` === "reviewer acme none"
      ? "at once"
      : undefined;
  await using one = await server(own.database, [THREE], { goesAlone });
  const worker = new Worker("reviewer");
  one.board.consume(worker);
  const off = drafts(1)[0]!;
  const [a, b, c] = drafts(3, { correlation_id: "on" });
  await one.board.publish([a!, off, b!, c!]);
  const tasks = await runs(worker, 2);
  const single = tasks.find(({ artifacts }) => artifacts.length === 1)!;
  expect(single).toMatchObject({ id: off.id, artifacts: [off] });
  expect(isGathered(single)).toBe(false);
  expect(tasks.find((task) => task !== single)!.artifacts).toEqual([a, b, c]);
});

test("what goes alone in order is given to the agent in the order of arrival, one after the other", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [THREE], { goesAlone: () => "in order" });
  const worker = new Worker("reviewer", async ({ artifacts }) => {
    // The later, the faster.
    for (let turns = 20 - Number(artifacts[0].payload); turns > 0; turns--) await new Promise(setImmediate);
    return done();
  });
  one.board.consume(worker);
  await one.board.publish(drafts(20));
  await runs(worker, 20);
  expect(worker.payloads()).toEqual(range(1, 20));
  expect(worker.overlaps).toEqual([]);
});

test("what waits for a batch is open in its correlation, and a backlog is counted", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [THREE]);
  await one.board.publish([...drafts(2, { correlation_id: "c" }), ...drafts(2)]);
  const [counts] = await one.board.counts();
  expect(counts).toMatchObject({ agent: "reviewer", waiting: 4 });
  expect(await one.board.correlations([{ org: "acme", name: "c" }])).toMatchObject([
    { artifacts: 2, open: 2, done: 0 },
  ]);
  one.board.consume(new Worker("reviewer"));
  await until("all is done", async () => {
    const [now] = await one.board.correlations([{ org: "acme", name: "c" }]);
    return now!.open === 0 && now!.done === 3;
  });
  expect(await one.board.counts()).toMatchObject([{ waiting: 0, running: 0 }]);
});

test("a day stays while an artifact of it waits for its batch, or is in one that is not settled", async () => {
  await using own = await testDatabase();
  const { database } = own;
  const now = Date.now();
  const old = now - 10 * DAY;
  const day = new Date(old).toISOString().slice(0, 10).replaceAll("-", "");
  await makePartitions(database, old);
  await using one = await server(database, [THREE]);
  const id = uuidv7({ now: () => old, after: () => () => {} })();
  const artifact = makeTestArtifact({ id, to: "reviewer" });
  const keep = { retentionMs: 7 * DAY, deadRetentionMs: 30 * DAY };
  await one.board.publish([...drafts(1), artifact]);
  expect((await sweepBoard(database, now, keep)).dropped).not.toContain(day);
  const worker = new Worker("reviewer", async () => {
    await worker.released;
    return done();
  });
  one.board.consume(worker);
  await kept(database, 2);
  expect((await sweepBoard(database, now, keep)).dropped).not.toContain(day);
  await one.board.publish(drafts(1));
  await runs(worker, 1);
  expect((await sweepBoard(database, now, keep)).dropped).not.toContain(day);
  worker.release();
  await until("it is settled", () => one.heard.settlements.length === 1);
  await until("the day goes", async () => (await sweepBoard(database, now, keep)).dropped.includes(day));
});

test("a task of one artifact that is enqueued is not taken for a batch", async () => {
  await using own = await testDatabase();
  await using one = await server(own.database, [THREE]);
  const worker = new Worker("reviewer");
  one.board.consume(worker);
  const [artifact] = drafts(1);
  await one.board.enqueue([makeTestTask("reviewer", artifact!)]);
  const [task] = await runs(worker, 1);
  expect(task!.artifacts).toEqual([artifact]);
});

test("however many servers publish and work, each artifact is in exactly one batch of the right size", async () => {
  await using own = await testDatabase({ poolSize: 20 });
  const given = {
    size: fc.integer({ min: 2, max: 6 }),
    count: fc.integer({ min: 1, max: 60 }),
    seed: fc.integer(),
  };
  let round = 0;
  await fc.assert(
    fc.asyncProperty(fc.record(given), async ({ size, count, seed }) => {
      const random = seeded(seed);
      const agent = batching(`agent${++round}`, size);
      await using stack = new AsyncDisposableStack();
      const servers: Awaited<ReturnType<typeof server>>[] = [];
      for (const _ of range(1, 3)) servers.push(stack.use(await server(own.database, [agent])));
      const worker = new Worker(agent.agent);
      for (const { board } of servers) board.consume(worker);
      const artifacts = range(1, count).map((payload) => makeTestArtifact({ to: agent.agent, payload }));
      const calls: (typeof artifacts)[] = [];
      for (let at = 0; at < count; ) {
        const length = 1 + Math.floor(random() * 8);
        calls.push(artifacts.slice(at, at + length));
        at += length;
      }
      await Promise.all(calls.map((call) => servers[Math.floor(random() * 3)]!.board.publish(call)));
      const full = Math.floor(count / size);
      await runs(worker, full);
      await kept(own.database, count % size);
      expect(worker.runs).toHaveLength(full);
      for (const { task } of worker.runs) expect(task.artifacts).toHaveLength(size);
      const seen = worker.runs.flatMap(({ task }) => payloads(task)) as number[];
      expect(new Set(seen).size).toBe(full * size);
      await own.database.query({ text: "TRUNCATE runtime.board_batches" });
    }),
    { numRuns: 15 },
  );
});
