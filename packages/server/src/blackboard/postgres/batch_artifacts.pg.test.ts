import {
  Heard,
  makeTestArtifact,
  makeTestTask,
  newId,
  range,
  routeByTags,
} from "@khala/testing/conformance/board/support";
import { Worker } from "@khala/testing/conformance/board/worker";
import { testContext } from "@khala/testing/kit/context";
import { until } from "@khala/testing/kit/until";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { pino } from "pino";
import { expect, test } from "vitest";
import { openDatabase } from "../../database/database.ts";
import type { BoardAgent } from "../board.ts";
import type { Artifact } from "../model/artifact.ts";
import { openPostgresBoard } from "./open_board.ts";

const HOUR = 3_600_000;

function batching(agent: string, size: number, byKey = false): BoardAgent {
  return { agent, order: "key", strict: false, batch: { size, timeoutMs: HOUR, byKey } };
}

/** Commits wait for the disk only if that is asked for: the tests' server spares itself that. */
async function opened({ agents = [batching("one", 3)], pollMs = 50, asUsual = false } = {}) {
  const parts = new AsyncDisposableStack();
  const own = parts.use(await testDatabase());
  const url = new URL(own.url);
  url.searchParams.set("options", `-c synchronous_commit=${asUsual ? "on" : "off"}`);
  const database = openDatabase({
    url: String(url),
    poolSize: 10,
    connectTimeoutMs: 60_000,
    log: pino({ level: "silent" }),
  });
  parts.defer(() => database.close());
  const heard = new Heard();
  const board = await openPostgresBoard(database, await testContext(), {
    agents,
    route: routeByTags,
    routes: true,
    observer: heard,
    wakeups: { send() {} },
    pollMs,
  });
  parts.defer(() => board.stop());
  /** The artifacts of so many tasks, each as its agent got it. */
  async function ran(worker: Worker, count: number) {
    await until(`${count} runs`, () => worker.runs.length >= count);
    return worker.runs.map(({ task }) => task.artifacts);
  }
  return { database, board, heard, ran, [Symbol.asyncDispose]: () => parts.disposeAsync() };
}

const draft = (given: Parameters<typeof makeTestArtifact>[0] = {}) =>
  makeTestArtifact({ to: "one", ...given });

test("a batch has the versions that came for it, and no other versions of the same artifacts", async () => {
  await using server = await opened();
  const { board, ran } = server;
  const worker = new Worker("one");
  board.consume(worker);
  const first = draft({ payload: "first" });
  const [second, third] = [2, 3].map((version) => ({ ...first, version, payload: version }));
  const others = range(1, 3).map((payload) => draft({ payload }));
  const batches = [
    [first, others[0]!, second!],
    [others[1]!, third!, others[2]!],
  ];
  for (const artifact of batches.flat()) await board.publish([artifact]);
  expect(await ran(worker, 2)).toEqual(batches);
});

test("a batch has its artifacts in the order in which they came, whatever their ids, and in whichever case", async () => {
  await using server = await opened();
  const { board, ran } = server;
  const worker = new Worker("one");
  const ids = range(1, 6).map(() => newId());
  const batches = [
    [ids[2]!, ids[0]!, ids[1]!],
    [ids[3]!, ids[4]!.toUpperCase(), ids[5]!],
  ].map((of) => of.map((id) => draft({ id })));
  for (const artifact of batches.flat()) await board.publish([artifact]);
  board.consume(worker);
  expect(await ran(worker, 2)).toEqual(batches);
});

test("a commit with artifacts of several agents, orgs, keys, versions and correlations puts each where it belongs", async () => {
  const agents = [batching("one", 4, true), batching("two", 6)];
  await using server = await opened({ agents });
  const { board, ran } = server;
  const of = (org_id: string, partition_key: string, given: Parameters<typeof makeTestArtifact>[0] = {}) =>
    makeTestArtifact({ to: ["one", "two"], org_id, partition_key, payload: "é".repeat(9), ...given });
  const artifacts = range(1, 4).flatMap((n): Artifact[] => {
    const kept = of("acme", "a");
    return [
      kept,
      of("acme", 'b "quoted", {listed}', { correlation_id: `c ${n}` }),
      of("zeta", "a", n > 2 ? { version: n } : {}),
    ];
  });
  const [one, two] = [new Worker("one"), new Worker("two")];
  for (const worker of [one, two]) board.consume(worker);
  await board.publish(artifacts);
  const those = (org: string, key?: string) =>
    artifacts.filter(({ org_id, partition_key }) => org_id === org && (!key || partition_key === key));
  const byFirst = (all: readonly (readonly Artifact[])[]) =>
    all.toSorted((a, b) => (a[0]!.id < b[0]!.id ? -1 : 1));
  expect(byFirst(await ran(one, 3))).toEqual(
    byFirst([those("acme", "a"), those("acme", 'b "quoted", {listed}'), those("zeta", "a")]),
  );
  await board.publish(range(1, 2).map(() => makeTestArtifact({ to: "two", org_id: "zeta" })));
  const [acme, zeta] = (await ran(two, 2)).toSorted((a, b) => (a[0].org_id < b[0].org_id ? -1 : 1));
  expect(acme).toEqual(those("acme").slice(0, 6));
  expect(zeta!.slice(0, 4)).toEqual(those("zeta"));
  await until("two of acme wait", async () => {
    const text = "SELECT ids::text[] AS ids, versions, sizes FROM runtime.board_batches";
    const kept = await server.database.query({ text });
    const left = those("acme").slice(6);
    const sizes = left.map((artifact) => Buffer.byteLength(JSON.stringify(artifact)));
    const expected = [{ ids: left.map(({ id }) => id), versions: [1, 1], sizes }];
    return JSON.stringify(kept) === JSON.stringify(expected);
  });
});

test.each([
  ["one", (artifacts: Artifact[]) => artifacts.slice(1, 2)],
  ["every one", (artifacts: Artifact[]) => artifacts],
])("a batch of which %s is gone is a dead letter, and the next is worked on", async (_, lost) => {
  await using server = await opened();
  const { database, board, heard, ran } = server;
  const artifacts = range(1, 6).map((payload) => draft({ payload }));
  await board.publish(artifacts);
  for (const { id } of lost(artifacts.slice(0, 3)))
    await database.query({ text: "DELETE FROM runtime.board_artifacts WHERE id = $1", values: [id] });
  const worker = new Worker("one");
  board.consume(worker);
  expect(await ran(worker, 1)).toEqual([artifacts.slice(3)]);
  await until("it is settled", () => heard.settlements.length === 1);
  const { deadLetters } = await board.deadLetters("one", { limit: 5 });
  expect(deadLetters.map(({ failure }) => failure.class)).toEqual(["ArtifactMissing"]);
  expect(await board.counts()).toEqual([{ agent: "one", waiting: 0, running: 0, dead: 1 }]);
});

test("a task that comes for an agent with batches is claimed at once, as a batch is", async () => {
  // Nobody looks by itself while this runs.
  await using server = await opened({ pollMs: HOUR });
  const { board, ran } = server;
  const worker = new Worker("one");
  board.consume(worker);
  const artifacts = range(1, 4).map((payload) => draft({ payload }));
  await board.enqueue([makeTestTask("one", artifacts[0]!)]);
  expect(await ran(worker, 1)).toEqual([[artifacts[0]]]);
  await board.publish(artifacts.slice(1));
  expect((await ran(worker, 2))[1]).toEqual(artifacts.slice(1));
});

test("what is claimed does not wait for the disk; what is published, made a batch and settled does", async () => {
  const plain: BoardAgent = { agent: "two", order: "none", strict: false };
  await using server = await opened({ agents: [batching("one", 3), plain], asUsual: true });
  const { database, board, heard } = server;
  await database.query({ text: "CREATE TABLE seen (what text, waits text)" });
  await database.query({
    text: `CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO seen VALUES (TG_TABLE_NAME || ' ' || lower(TG_OP), current_setting('synchronous_commit'));
      RETURN NULL;
    END $$`,
  });
  // As the transaction commits.
  for (const table of ["board_queue", "board_arrivals"])
    await database.query({
      text: `CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON runtime.${table}
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()`,
    });
  await board.publish(range(1, 3).map(() => draft({ to: ["one", "two"] })));
  for (const agent of ["one", "two"]) board.consume(new Worker(agent));
  await until("all are settled", () => heard.settlements.length === 4);
  const seen = await database.query({ text: "SELECT DISTINCT what, waits FROM seen ORDER BY what, waits" });
  expect(seen.map(({ what, waits }) => `${what}: ${waits}`)).toEqual([
    "board_arrivals delete: on",
    "board_arrivals insert: on",
    "board_queue delete: on",
    "board_queue insert: on",
    "board_queue update: off",
  ]);
});
