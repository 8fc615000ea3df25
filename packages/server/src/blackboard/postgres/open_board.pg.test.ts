import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { boardSuite } from "@khala/test-support/conformance/board/board";
import {
  Heard,
  makeTestArtifact,
  numbered,
  range,
  routeByTags,
} from "@khala/test-support/conformance/board/support";
import { dead, done, payloadOf, retry, Worker } from "@khala/test-support/conformance/board/worker";
import { seeded, testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { expect, test } from "vitest";
import { type Database, openDatabase } from "../../database/database.ts";
import { openWakeups } from "../../database/wakeups.ts";
import type { Context } from "../../kit/context.ts";
import type { Board } from "../board.ts";
import type { BoardOptions } from "../board_options.ts";
import { PARTITIONS } from "./lanes.ts";
import { openPostgresBoard, type PostgresBoard } from "./open_board.ts";

const LEASE_MS = 30_000;

boardSuite("Postgres", async () => {
  const parts = new AsyncDisposableStack();
  const { database } = parts.use(await testDatabase({ poolSize: 12 }));
  const clock = new JumpClock();
  const context = await testContext({ clock });
  const boards: PostgresBoard[] = [];
  const open = async (options: BoardOptions): Promise<Board> => {
    const wakeups = openWakeups(database, context, { enabled: true });
    const board = await openPostgresBoard(database, context, {
      ...options,
      wakeups,
      leaseMs: LEASE_MS,
      pollMs: 500,
    });
    wakeups.on("", (name) => board.onWakeup(name));
    wakeups.onListening(() => board.recheck());
    wakeups.start();
    boards.push(board);
    const { stop } = board;
    parts.defer(async () => {
      await stop();
      await wakeups.stop();
    });
    return board;
  };
  return {
    open,
    conflicts: true,
    countsOrgs: true,
    partitions: PARTITIONS,
    async jump(ms) {
      await database.query({
        text: `UPDATE runtime.board_tasks SET due_at = due_at - $1 * interval '1 ms' WHERE claimed_by IS NULL`,
        values: [ms],
      });
      for (const board of boards) board.recheck();
    },
    async usurp(board) {
      await database.query({
        text: `UPDATE runtime.board_tasks SET held_until = now(), claimed_by = 'nobody' WHERE claimed_by = $1`,
        values: [(board as PostgresBoard).holder],
      });
    },
    renew: () => clock.jump(LEASE_MS / 2),
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
});

const KEYED = ["one", "two"].map((agent) => ({ agent, order: "key", strict: true }) as const);

/** A server's board without wakeups: it finds what others did by polling. */
function opened(
  database: Database,
  context: Context,
  heard: Heard,
  leaseMs = 30_000,
): Promise<PostgresBoard> {
  const options = {
    agents: KEYED,
    route: routeByTags,
    observer: heard,
    wakeups: { send() {} },
  };
  return openPostgresBoard(database, context, { ...options, leaseMs, pollMs: 50 });
}

test("50 consumers on ten servers settle every task once and in the order of its key, despite failures", async () => {
  await using parts = new AsyncDisposableStack();
  const { url } = parts.use(await testDatabase());
  const context = await testContext();
  const heard = new Heard();
  const random = seeded(5);
  const boards: PostgresBoard[] = [];
  for (const _ of range(1, 10)) {
    const database = openDatabase({ url, poolSize: 3, connectTimeoutMs: 60_000, log: context.log });
    parts.defer(() => database.close());
    const board = await opened(database, context, heard);
    parts.defer(() => board.stop());
    boards.push(board);
  }
  const first = new Worker("one", (task) => {
    const chance = random();
    if (chance < 0.05 && task.attempt < 3) return retry(1);
    if (chance < 0.07) return dead();
    return done(makeTestArtifact({ to: "two", partition_key: task.key, payload: payloadOf(task) }));
  });
  const second = new Worker("two");
  for (const board of boards)
    for (const worker of [first, first, first, second, second]) board.consume(worker);
  const keys = range(1, 20).map((key) => `key ${key}`);
  const rows = keys.map((key) => numbered("one", key, 20));
  await Promise.all(
    rows.map(async (row, i) => {
      for (let at = 0; at < 20; at += 4) await boards[i % 10]!.publish(row.slice(at, at + 4));
    }),
  );
  const ended = (agent: string) =>
    heard.settledBy(agent).filter(({ settlement }) => settlement.kind !== "retry");
  await eventually("the first agent has settled all", () => ended("one").length >= 400);
  const outputs = () => ended("one").filter(({ settlement }) => settlement.kind === "done").length;
  await eventually("the second agent has settled all", () => ended("two").length >= outputs());
  for (const agent of ["one", "two"])
    expect(new Set(ended(agent).map(({ task }) => task.id)).size).toBe(ended(agent).length);
  expect(ended("one")).toHaveLength(400);
  expect(first.overlaps).toEqual([]);
  expect(second.overlaps).toEqual([]);
  for (const key of keys) {
    expect([...new Set(first.payloads(key))]).toEqual(range(1, 20));
    const numbers = second.payloads(key).map(Number);
    expect(numbers).toEqual(numbers.toSorted((x, y) => x - y));
  }
}, 90_000);

test("notifies others at once of a few tasks, and with a delay of many", async () => {
  await using parts = new AsyncDisposableStack();
  const { database } = parts.use(await testDatabase());
  const waits: (number | undefined)[] = [];
  const wakeups = { send: (_: string, waitMs?: number) => void waits.push(waitMs) };
  const board = await openPostgresBoard(database, await testContext(), {
    agents: KEYED,
    route: routeByTags,
    observer: new Heard(),
    wakeups,
  });
  parts.defer(() => board.stop());
  await board.publish([makeTestArtifact({ to: "one" })]);
  await board.publish(range(1, 100).map(() => makeTestArtifact({ to: "one" })));
  expect(waits).toEqual([undefined, 10]);
});

test("a settlement whose answer was lost counts once, and publishes its output once", async () => {
  await using parts = new AsyncDisposableStack();
  const { url, database } = parts.use(await testDatabase());
  const { hostname, port } = new URL(url);
  const proxy = parts.use(await startTcpProxy({ host: hostname, port: Number(port) }));
  const context = await testContext();
  const heard = new Heard();
  const poolSize = 8;
  const through = openDatabase({
    url: proxy.through(url),
    poolSize,
    connectTimeoutMs: 60_000,
    log: context.log,
  });
  parts.defer(() => through.close());
  // While there are no answers none can be opened, and those that look for work hold some.
  await Promise.all(range(1, poolSize).map(() => through.query({ text: "SELECT pg_sleep(0.1)" })));
  const board = await opened(through, context, heard);
  parts.defer(() => board.stop());
  const direct = await opened(database, context, heard);
  parts.defer(() => direct.stop());
  const worker = new Worker("one", () => {
    proxy.pause("answers");
    return done(makeTestArtifact({ payload: "output" }));
  });
  board.consume(worker);
  const given = makeTestArtifact({ to: "one" });
  await direct.publish([given]);
  const outputs = async () =>
    (await direct.recent({ org: "acme", limit: 10 })).filter(({ payload }) => payload === "output").length;
  await eventually("it is committed", outputs);
  proxy.cut();
  proxy.resume();
  await eventually("the queue is empty", async () => (await direct.lag()).every(({ lag }) => lag === "0"));
  expect(worker.runs).toHaveLength(1);
  expect(await outputs()).toBe(1);
});

/** Another process that works for one agent, and reports before its settlement. It runs at most ten tasks: others remain for the next. */
const PROCESS = `
const [support, board, hub, url] = process.argv.slice(1);
const { testContext } = await import(support + "/kit/context.ts");
const { openDatabase } = await import(hub + "/database/database.ts");
const { openPostgresBoard } = await import(board);
const context = await testContext();
const database = openDatabase({ url, poolSize: 4, connectTimeoutMs: 60_000, log: context.log });
let left = 10;
const silent = { published() {}, routed() {}, settled() {}, repeated() {} };
const agents = [{ agent: "one", order: "key", strict: true }];
const route = () => ({ tasks: [], dead: [] });
const options = { agents, route, observer: silent, wakeups: { send() {} }, leaseMs: 1500, pollMs: 50 };
const opened = await openPostgresBoard(database, context, options);
opened.consume({
  agent: "one", order: "key", strict: true, concurrency: 5, gate: async () => {},
  async handle(task) {
    const output = { ...task.artifacts[0], id: context.newId(), tags: [], payload: "output of " + task.artifacts[0].payload };
    console.log(task.id);
    if (left-- <= 0) await new Promise(() => {});
    return { kind: "done", outputs: [output] };
  },
});
`;

test("a process killed during its settlements leaves nothing half-done, and another continues", async () => {
  await using parts = new AsyncDisposableStack();
  const { url, database } = parts.use(await testDatabase());
  const context = await testContext();
  const heard = new Heard();
  const board = await opened(database, context, heard, 1_500);
  parts.defer(() => board.stop());
  const [home, support] = [
    `${import.meta.dirname}/../..`,
    `${import.meta.dirname}/../../../../test-support/src`,
  ];
  const keys = range(1, 5).map((key) => `key ${key}`);
  await board.publish(keys.flatMap((key) => numbered("one", key, 8)));
  for (const _ of range(1, 3)) {
    const args = [support, `${import.meta.dirname}/open_board.ts`, home, url];
    const flags = ["--conditions=khala-source", "--input-type=module-typescript", "-e", PROCESS];
    const child = spawn(process.execPath, [...flags, ...args], { stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(child, "close");
    await once(createInterface({ input: child.stdout }), "line");
    child.kill("SIGKILL");
    await ended;
  }
  const worker = new Worker("one", (task) =>
    done(makeTestArtifact({ payload: `output of ${payloadOf(task)}`, partition_key: task.key })),
  );
  board.consume(worker);
  await eventually("nothing is open", async () => (await board.lag()).every(({ lag }) => lag === "0"));
  const all = await board.recent({ org: "acme", limit: 1_000 });
  for (const key of keys) {
    const outputs = all.filter(
      (each) => each.partition_key === key && String(each.payload).startsWith("output"),
    );
    expect(outputs.map(({ payload }) => payload)).toEqual(range(1, 8).map((n) => `output of ${9 - n}`));
  }
});
