import { artifactKey } from "@khala/contracts";
import { Heard, makeTestArtifact, range, routeByTags } from "@khala/testing/conformance/board/support";
import { dead, done, payloadOf, retry, Worker } from "@khala/testing/conformance/board/worker";
import { seeded, testContext } from "@khala/testing/kit/context";
import { eventually } from "@khala/testing/kit/eventually";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { expect, test } from "vitest";
import type { Artifact } from "../model/artifact.ts";
import { openPostgresBoard, type PostgresBoard } from "./open_board.ts";
import { sweepBoard } from "./partitions.ts";

const AGENTS = [
  { agent: "one", order: "key", strict: false },
  { agent: "two", order: "none", strict: false },
] as const;

async function opened(leaseMs = 60_000) {
  const parts = new AsyncDisposableStack();
  const { database } = parts.use(await testDatabase({ poolSize: 12 }));
  const context = await testContext();
  const heard = new Heard();
  const open = async (routes = true): Promise<PostgresBoard> => {
    const board = await openPostgresBoard(database, context, {
      agents: AGENTS,
      route(artifact) {
        const { tasks, dead: letters } = routeByTags(artifact);
        return { tasks: tasks.map((task) => ({ ...task, key: artifactKey(artifact) })), dead: letters };
      },
      routes,
      observer: heard,
      wakeups: { send() {} },
      leaseMs,
      pollMs: 50,
    });
    parts.defer(() => board.stop());
    return board;
  };
  const rows = (table: string) =>
    database
      .query<{ n: bigint }>({ text: `SELECT count(*) AS n FROM runtime.${table}` })
      .then(([row]) => Number(row!.n));
  const bundles = () => rows("board_bundles");
  const board = await open();
  return { database, board, open, heard, rows, bundles, [Symbol.asyncDispose]: () => parts.disposeAsync() };
}

/** Artifacts that nothing orders, with the payloads 1 to `count`. */
function loose(count: number, to: string | readonly string[] = "one"): Artifact[] {
  return range(1, count).map((payload) => makeTestArtifact({ to, payload }));
}

/** So quick that whole bundles are worth having, once that is known. */
async function warm({ board, heard }: { board: PostgresBoard; heard: Heard }, worker: Worker): Promise<void> {
  const before = heard.settlements.length;
  await board.publish(range(1, 10).map(() => makeTestArtifact({ to: worker.agent, payload: "warm" })));
  await eventually("it is warm", () => heard.settlements.length === before + 10);
}

const isWarm = (payload: unknown) => payload === "warm";

test("tasks that nothing orders share rows of a hundred; large ones, those with a key or a correlation, and few do not", async () => {
  await using server = await opened();
  const { board, rows, bundles } = server;
  await board.publish(loose(150, ["one", "two"]));
  expect(await bundles()).toBe(4);
  expect(await rows("board_queue")).toBe(0);
  await board.publish(range(1, 20).map(() => makeTestArtifact({ to: "one", partition_key: "key" })));
  await board.publish(range(1, 20).map(() => makeTestArtifact({ to: "two", correlation_id: "together" })));
  await board.publish(loose(15));
  await board.publish(loose(20).map((artifact) => ({ ...artifact, payload: "long ".repeat(4_000) })));
  expect(await bundles()).toBe(4);
  expect(await rows("board_queue")).toBe(75);
  await board.publish(
    range(1, 20).map(() => makeTestArtifact({ to: "two", partition_key: 'of "its" \\own' })),
  );
  expect(await bundles()).toBe(5);
  const [one, two] = await board.counts();
  expect(one).toEqual({ agent: "one", waiting: 205, running: 0, dead: 0 });
  expect(two).toEqual({ agent: "two", waiting: 190, running: 0, dead: 0 });
});

test("a task of a bundle is what it would be in a row of its own", async () => {
  await using server = await opened();
  const { board, heard, bundles } = server;
  const own = loose(20);
  const keyed = range(1, 20).map((n) => makeTestArtifact({ to: "two", partition_key: `"${n}" \\ {,}` }));
  const workers = [new Worker("one", undefined, 100), new Worker("two", undefined, 100)];
  const publisher = await server.open();
  for (const worker of workers) {
    board.consume(worker);
    await warm(server, worker);
  }
  await publisher.publish(own);
  await publisher.publish(keyed);
  await eventually("all are settled", () => heard.settlements.length === 60);
  const tasks = workers
    .flatMap(({ runs }) => runs.map(({ task }) => task))
    .filter((task) => !isWarm(payloadOf(task)));
  const byId = new Map(tasks.map((task) => [task.id, task]));
  for (const artifact of [...own, ...keyed]) {
    const task = byId.get(artifact.id)!;
    expect(task).toMatchObject({
      id: artifact.id,
      key: artifactKey(artifact),
      attempt: 1,
      artifacts: [artifact],
    });
    expect(Date.parse(task.created_at)).toBeGreaterThan(Date.parse(artifact.created_at) - 1_000);
  }
  expect(await bundles()).toBe(0);
});

test("tasks of one bundle end when they end, and the bundle with the last of them", async () => {
  await using server = await opened();
  const { board, heard, bundles, rows } = server;
  const worker = new Worker(
    "one",
    async (task) => {
      if (payloadOf(task) === 7) await worker.released;
      return done();
    },
    100,
  );
  const publisher = await server.open();
  board.consume(worker);
  await warm(server, worker);
  await publisher.publish(loose(40));
  await eventually("all but one are settled", () => heard.settlements.length === 49);
  await eventually("it is seen", async () => {
    const [one] = await board.counts();
    return one!.waiting === 0 && one!.running === 1;
  });
  expect((await bundles()) + (await rows("board_queue"))).toBe(1);
  worker.release();
  await eventually("all are settled", () => heard.settlements.length === 50);
  expect((await bundles()) + (await rows("board_queue"))).toBe(0);
});

test("with eight servers every task of a bundle is settled once, whatever fails, stops or is taken away", async () => {
  await using server = await opened();
  const { database, heard, open, bundles, rows } = server;
  const random = seeded(7);
  const worker = new Worker(
    "one",
    async (task) => {
      if (random() < 0.2) await new Promise(setImmediate);
      const chance = random();
      if (chance < 0.05 && task.attempt < 4) return retry(1);
      if (chance < 0.07) return dead();
      return chance < 0.2 ? done(makeTestArtifact({ to: "two", payload: payloadOf(task) })) : done();
    },
    50,
  );
  const second = new Worker("two", undefined, 50);
  const boards = await Promise.all(range(1, 8).map(() => open()));
  const consumptions = boards.flatMap((board) => [board.consume(worker), board.consume(second)]);
  const count = 3_000;
  for (let at = 0; at < count; at += 300) {
    await boards[random() < 0.5 ? 0 : 1]!.publish(loose(300));
    if (at === 900) await consumptions[14]!.stop();
    if (at === 1_500)
      await database.query({
        text: "UPDATE runtime.board_bundles SET claimed_by = 'gone', held_until = now() WHERE claimed_by IS NOT NULL",
      });
    if (at === 2_100) await boards[6]!.stop();
  }
  const ended = (agent: string) =>
    heard.settledBy(agent).filter(({ settlement }) => settlement.kind !== "retry");
  const outputs = () =>
    ended("one").filter(({ settlement }) => settlement.kind === "done" && settlement.outputs.length > 0)
      .length;
  await eventually("the first agent has settled all", () => ended("one").length >= count);
  await eventually("the second agent has settled all", () => ended("two").length >= outputs());
  for (const agent of ["one", "two"])
    expect(new Set(ended(agent).map(({ task }) => task.id)).size).toBe(ended(agent).length);
  expect(ended("one")).toHaveLength(count);
  expect((await bundles()) + (await rows("board_queue"))).toBe(0);
}, 90_000);

test("who settles tasks of several bundles, and not all alike, holds no later bundle while it waits for an earlier one", async () => {
  await using server = await opened();
  const { board, database, heard, open } = server;
  for (const payload of ["again", "done"])
    await board.publish(range(1, 20).map(() => makeTestArtifact({ to: "two", payload })));
  const go = Promise.withResolvers<void>();
  const worker = new Worker(
    "two",
    async (task) => {
      await go.promise;
      return payloadOf(task) === "again" && task.attempt === 1 ? retry(1) : done();
    },
    100,
  );
  (await open()).consume(worker);
  await eventually("all have begun", () => worker.runs.length === 40);
  const claimed = await database.query<{ seq: bigint }>({
    text: "SELECT seq FROM runtime.board_bundles WHERE claimed_by IS NOT NULL ORDER BY seq",
  });
  expect(claimed).toHaveLength(2);
  const lock = (at: number) => ({
    text: "SELECT seq FROM runtime.board_bundles WHERE seq = $1 FOR UPDATE SKIP LOCKED",
    values: [claimed[at]!.seq],
  });
  await database.interactive(async (other) => {
    expect(await other.query(lock(0))).toHaveLength(1);
    go.resolve();
    await eventually("somebody waits for it", async () => {
      const text =
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
      return (await database.query({ text })).length > 0;
    });
    expect(await other.query(lock(1))).toHaveLength(1);
  });
  await eventually("all are done", () => heard.settlements.length === 60);
  expect(heard.settlements.filter(({ settlement }) => settlement.kind === "done")).toHaveLength(40);
});

test("work that takes longer than a lease stays where it is, in a bundle or not, whatever else came with it and is done", async () => {
  // So long that a busy machine does not let it pass.
  await using server = await opened(10_000);
  const { database, heard, board } = server;
  const isLong = (payload: unknown) => payload === 7;
  const go = Promise.withResolvers<void>();
  const workers = await Promise.all(
    range(1, 2).map(async () => {
      const worker = new Worker(
        "two",
        async (task) => {
          if (isLong(payloadOf(task))) await go.promise;
          return done();
        },
        100,
      );
      (await server.open()).consume(worker);
      return worker;
    }),
  );
  await board.publish(loose(20, "two"));
  await board.publish(
    range(1, 20).map((payload) => makeTestArtifact({ to: "two", payload, correlation_id: "together" })),
  );
  await eventually("only the long ones are left", () => heard.settlements.length === 38);
  const leases = new Set<string>();
  const lookForLeases = async () => {
    const rows = await database.query<{ held: string; is_over: boolean }>({
      text: `SELECT held_until::text AS held, held_until <= now() AS is_over FROM (
        SELECT held_until FROM runtime.board_bundles UNION ALL SELECT held_until FROM runtime.board_queue
      ) q`,
    });
    expect(rows.map(({ is_over }) => is_over)).toEqual([false, false]);
    for (const { held } of rows) leases.add(held);
  };
  // Renewed together, each time that a quarter of a lease has passed: more than a whole one in all.
  await eventually("they are renewed again and again", async () => {
    await lookForLeases();
    return leases.size >= 6;
  });
  go.resolve();
  await eventually("all are settled", () => heard.settlements.length === 40);
  expect(workers.flatMap(({ runs }) => runs)).toHaveLength(40);
  expect(new Set(workers.flatMap((worker) => worker.attempts()))).toEqual(new Set([1]));
});

test("the bundle of a server that is gone is taken over, and its tasks know that it is their second attempt", async () => {
  await using server = await opened();
  const { board, database, heard, bundles } = server;
  await board.publish(loose(60));
  await database.query({
    text: "UPDATE runtime.board_bundles SET claimed_by = 'gone', held_until = now() + interval '1 s'",
  });
  const worker = new Worker("one");
  board.consume(worker);
  await eventually("all are settled", () => heard.settlements.length === 60);
  expect(new Set(worker.attempts())).toEqual(new Set([2]));
  expect(await bundles()).toBe(0);
});

test("a bundle is no one process's where each can take few: it is undone, and they share it", async () => {
  await using server = await opened();
  const { board, heard, bundles } = server;
  const other = await server.open();
  const workers = [board, other].map((each) => {
    const worker: Worker = new Worker(
      "one",
      async () => {
        await worker.released;
        return done();
      },
      5,
    );
    each.consume(worker);
    return worker;
  });
  await (await server.open()).publish(loose(100));
  await eventually("both have work", () => workers.every(({ runs }) => runs.length === 5));
  expect(await bundles()).toBe(0);
  const [one] = await board.counts();
  expect(one).toMatchObject({ waiting: 90, running: 10 });
  for (const worker of workers) worker.release();
  await eventually("all are settled", () => heard.settlements.length === 100);
  expect(workers.map(({ mostAtOnce }) => mostAtOnce)).toEqual([5, 5]);
});

test("a later version of an artifact waits for the first, though that waits or runs in a bundle", async () => {
  await using server = await opened();
  const { board, heard } = server;
  const publisher = await server.open();
  const worker = new Worker(
    "one",
    async (task) => {
      if (payloadOf(task) === 3) await worker.released;
      return done();
    },
    100,
  );
  const [waiting, running] = [loose(20), loose(20)];
  const later = ([, , artifact]: readonly Artifact[]) => ({ ...artifact!, version: 2, payload: "later" });
  worker.closeGate();
  board.consume(worker);
  await publisher.publish(waiting);
  await publisher.publish([later(waiting)]);
  worker.openGate();
  await eventually("it runs", () => worker.runs.some(({ task }) => task.id === waiting[2]!.id));
  await publisher.publish(running);
  await eventually("that runs too", () => worker.runs.some(({ task }) => task.id === running[2]!.id));
  await publisher.publish([later(running)]);
  await eventually("all others are settled", () => heard.settlements.length === 38);
  expect(worker.payloads()).not.toContain("later");
  worker.release();
  await eventually("all are settled", () => heard.settlements.length === 42);
  expect(worker.overlaps).toEqual([]);
});

test("who waits for longer comes first, in a bundle or in a row of its own", async () => {
  await using server = await opened();
  const { board, heard } = server;
  const publisher = await server.open();
  const worker = new Worker("two", undefined, 50);
  board.consume(worker);
  await warm(server, worker);
  worker.closeGate();
  await publisher.publish([makeTestArtifact({ to: "two", payload: "first" })]);
  await publisher.publish(range(1, 20).map(() => makeTestArtifact({ to: "two", payload: "second" })));
  await publisher.publish([makeTestArtifact({ to: "two", payload: "third" })]);
  worker.openGate();
  await eventually("all are settled", () => heard.settlements.length === 32);
  expect([...new Set(worker.payloads().filter((payload) => !isWarm(payload)))]).toEqual([
    "first",
    "second",
    "third",
  ]);
});

test("a task whose artifact is gone is a dead letter, and the others of its bundle are worked on", async () => {
  await using server = await opened();
  const { board, database, heard } = server;
  const publisher = await server.open();
  const worker = new Worker("one", undefined, 100);
  board.consume(worker);
  await warm(server, worker);
  worker.closeGate();
  const all = loose(20);
  await publisher.publish(all);
  await database.query({ text: "DELETE FROM runtime.board_artifacts WHERE id = $1", values: [all[4]!.id] });
  worker.openGate();
  await eventually("the others are settled", () => heard.settlements.length === 29);
  await eventually("it is a dead letter", async () => {
    const { deadLetters } = await board.deadLetters("one", { limit: 10 });
    return deadLetters.length === 1 && deadLetters[0]!.failure.class === "ArtifactMissing";
  });
});

test("what a server publishes that does not route is in no bundle until it is routed, and lost never", async () => {
  await using server = await opened();
  const { board, heard, bundles } = server;
  const silent = await server.open(false);
  await silent.publish(loose(50));
  expect(await bundles()).toBe(0);
  const worker = new Worker("one");
  board.consume(worker);
  await eventually("all are settled", () => heard.settlements.length === 50);
});

test("a day stays while a task of it is in a bundle", async () => {
  await using server = await opened();
  const { board, database } = server;
  const [first, ...others] = loose(20);
  await board.publish([first!, ...others]);
  const now = Date.now() + 30 * 86_400_000;
  const keep = { retentionMs: 86_400_000, deadRetentionMs: 86_400_000 };
  await sweepBoard(database, now, keep);
  expect(await board.get(first!.id)).toEqual(first);
});
