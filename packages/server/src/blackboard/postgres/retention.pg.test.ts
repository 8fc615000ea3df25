import {
  Heard,
  makeTestArtifact,
  makeTestTask,
  range,
  routeByTags,
} from "@khala/test-support/conformance/board/support";
import { done, Worker } from "@khala/test-support/conformance/board/worker";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import { openPostgresBoard } from "./open_board.ts";
import { purge } from "./retention.ts";

const DAY = 86_400_000;
const KEEP = { retentionMs: 7 * DAY, deadRetentionMs: 30 * DAY };

async function opened(database: Database) {
  const heard = new Heard();
  const board = await openPostgresBoard(database, await testContext(), {
    agents: [{ agent: "one", order: "key", strict: false }],
    route: routeByTags,
    observer: heard,
    wakeups: { send() {} },
    // Only the tests purge.
    retentionMs: 3_650 * DAY,
    deadRetentionMs: 3_650 * DAY,
  });
  return { board, heard, [Symbol.asyncDispose]: () => board.stop() };
}

/** Makes all that is on the board so many days older. */
async function age(database: Database, days: number): Promise<void> {
  for (const table of ["board_artifacts", "board_enqueued"])
    await database.query({
      text: `UPDATE runtime.${table} SET stored_at = stored_at - $1 * interval '1 day'`,
      values: [days],
    });
}

test("deletes artifacts older than the retention, and keeps the rest", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using server = await opened(database);
  const old = range(1, 2_500).map(() => makeTestArtifact());
  await server.board.publish(old);
  await age(database, 8);
  const recent = makeTestArtifact();
  await server.board.publish([recent]);
  expect((await purge(database, Date.now(), KEEP)).artifacts).toBe(old.length);
  expect(await server.board.get(old[0]!.org_id, old[0]!.id)).toBeUndefined();
  expect(await server.board.get(recent.org_id, recent.id)).toEqual(recent);
});

test("keeps the artifacts of an open task until it is settled", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using server = await opened(database);
  const { board, heard } = server;
  const routed = makeTestArtifact({ to: "one", payload: "routed" });
  await board.publish([routed]);
  const task = makeTestTask("one", makeTestArtifact({ payload: "enqueued" }));
  await board.enqueue([task]);
  await age(database, 8);
  expect(await purge(database, Date.now(), KEEP)).toMatchObject({ artifacts: 0, enqueued: 0 });
  await board.enqueue([task]);
  expect(heard.repetitions).toEqual([task]);

  const worker = new Worker("one", () => done());
  board.consume(worker);
  await until("both are settled", () => heard.settlements.length === 2);
  expect(worker.payloads().toSorted()).toEqual(["enqueued", "routed"]);
  expect(await purge(database, Date.now(), KEEP)).toMatchObject({ artifacts: 1, enqueued: 1 });
  expect(await board.get(routed.org_id, routed.id)).toBeUndefined();
});

test("deletes old dead letters, and keeps newer ones", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using server = await opened(database);
  await server.board.publish([1, 2, 3].map(() => makeTestArtifact({ breaks: "one" })));
  await database.query({
    text: `UPDATE runtime.board_dead_letters SET failed_at = now() - interval '31 days'
      WHERE seq = (SELECT min(seq) FROM runtime.board_dead_letters)`,
  });
  expect((await purge(database, Date.now(), KEEP)).deadLetters).toBe(1);
  expect((await server.board.deadLetters("one", { orgs: ["acme"], limit: 10 })).deadLetters).toHaveLength(2);
});

test("makes a dead letter of a task without its artifact, and runs the tasks claimed with it", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using server = await opened(database);
  const { board, heard } = server;
  const artifacts = ["a", "a", "b", "b"].map((key, payload) =>
    makeTestArtifact({ to: "one", partition_key: key, payload }),
  );
  await board.publish(artifacts);
  // The head of one lane, and one behind the head of the other.
  for (const lost of [artifacts[0]!, artifacts[3]!])
    await database.query({ text: "DELETE FROM runtime.board_artifacts WHERE id = $1", values: [lost.id] });
  const worker = new Worker("one");
  board.consume(worker);
  const letters = async () => (await board.deadLetters("one", { orgs: ["acme"], limit: 10 })).deadLetters;
  await until(
    "all are settled",
    async () => (await letters()).length === 2 && heard.settlements.length === 2,
  );
  expect(worker.payloads().toSorted()).toEqual([1, 2]);
  expect((await letters()).map(({ failure }) => failure.class)).toEqual([
    "ArtifactMissing",
    "ArtifactMissing",
  ]);
  expect(await board.counts()).toEqual([{ agent: "one", waiting: 0, running: 0, dead: 2 }]);
});
