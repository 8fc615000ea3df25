import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { RecordingBoard, testArtifact } from "@khala/test-support/kit/recording_board";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Context } from "../../kit/context.ts";
import type { Sweep } from "../waiting/sweep.ts";
import { startOutbox } from "./outbox.ts";
import { openSchedule, type ScheduledArtifacts } from "./schedule.ts";

const HOUR = 3_600_000;

let own: TestDatabase;
let clock: ManualClock;
let context: Context;
let board: RecordingBoard;
let servers: Sweep[];
let schedule: ScheduledArtifacts;
beforeAll(async () => {
  own = await testDatabase({ poolSize: 8 });
});
beforeEach(async () => {
  await own.database.query({ text: "TRUNCATE runtime.board_outbox" });
  clock = new ManualClock();
  context = await testContext({ clock });
  board = new RecordingBoard();
  servers = [];
  schedule = openSchedule(own.database, context, { wake: () => servers.map((server) => server.wake()) });
  return async () => void (await Promise.all(servers.map((server) => server.stop())));
});
afterAll(() => own[Symbol.asyncDispose]());

function start(): Sweep {
  const server = startOutbox(own.database, board, context, { pollMs: HOUR });
  servers.push(server);
  return server;
}

const artifact = (correlation?: string, org = "acme") =>
  testArtifact(context.newId(), { org_id: org, ...(correlation && { correlation_id: correlation }) });
const later = (ms: number, correlation?: string, org?: string) => ({
  artifact: artifact(correlation, org),
  notBefore: clock.now() + ms,
});
const rows = () => own.database.query({ text: "SELECT FROM runtime.board_outbox" });
/** The scheduled artifacts of all orgs, earliest first. */
async function scheduled() {
  const found = await own.database.query<{ artifact: object; at: Date }>({
    text: "SELECT body AS artifact, not_before AS at FROM runtime.board_outbox ORDER BY not_before, outbox_id",
  });
  return found.map(({ artifact, at }) => ({ artifact, notBefore: at.getTime() }));
}
const passing = (what: string, stepMs: number, condition: () => unknown) =>
  until(what, async () => {
    await clock.advance(stepMs);
    return (await condition()) as boolean;
  });
const empty = () => passing("nothing waits any more", 1_000, async () => (await rows()).length === 0);

test("publishes an artifact at its time, and not before", async () => {
  start();
  const entry = later(10_000);
  expect(await schedule.add([entry])).toEqual(["scheduled"]);
  await until("its time is known", () => clock.pending > 1);
  await clock.advance(9_999);
  expect(board.artifacts).toEqual([]);
  await clock.advance(1);
  await until("it is published", () => board.artifacts.length > 0, { on: board });
  expect(board.artifacts).toEqual([entry.artifact]);
  await until("its row is gone", async () => (await rows()).length === 0);
});

test("an artifact that is already scheduled is a duplicate, and keeps its time", async () => {
  const entry = later(10_000);
  await schedule.add([entry]);
  expect(await schedule.add([{ ...entry, notBefore: entry.notBefore + 5 }, later(1)])).toEqual([
    "duplicate",
    "scheduled",
  ]);
  expect((await scheduled()).at(-1)).toEqual(entry);
});

test("refuses other content under a scheduled id, and schedules nothing of that call", async () => {
  const entry = later(10_000);
  await schedule.add([entry]);
  const other = { ...entry, artifact: { ...entry.artifact, payload: "other" } };
  await expect(schedule.add([later(1), other, later(2)])).rejects.toMatchObject({
    code: "artifact_conflict",
  });
  expect(await scheduled()).toEqual([entry]);
});

test("an id scheduled in one org is free in every other", async () => {
  const entry = later(10_000);
  const foreign = { ...entry, artifact: { ...entry.artifact, org_id: "zeta", payload: "other" } };
  expect(await schedule.add([entry])).toEqual(["scheduled"]);
  expect(await schedule.add([foreign, foreign])).toEqual(["scheduled", "duplicate"]);
  expect(await scheduled()).toEqual([entry, foreign]);
});

test("concurrent calls that schedule the same artifacts in any order schedule each once", async () => {
  const entries = Array.from({ length: 50 }, () => later(10_000));
  const calls = Array.from({ length: 8 }, (_, i) => schedule.add(i % 2 ? entries : entries.toReversed()));
  const statuses = (await Promise.all(calls)).flat();
  expect(statuses.filter((status) => status === "scheduled")).toHaveLength(50);
  expect(await rows()).toHaveLength(50);
});

test("publishes at its start what fell due while no server ran", async () => {
  await schedule.add([later(10_000), later(20_000)]);
  await clock.advance(HOUR);
  start();
  await until("both are published", () => board.artifacts.length === 2, { on: board });
});

test("cancels the scheduled artifacts of one correlation of an org", async () => {
  const [a, b, other] = [later(2_000, "c"), later(1_000, "c"), later(1_500, "d")];
  await schedule.add([a, b, other, later(1_000, "c", "zeta")]);
  expect(await rows()).toHaveLength(4);
  await schedule.cancel("acme", "c");
  expect(await rows()).toHaveLength(2);
  start();
  await empty();
  expect(board.artifacts.map(({ org_id, correlation_id }) => `${org_id} ${correlation_id}`).sort()).toEqual([
    "acme d",
    "zeta c",
  ]);
});

test.each(["before", "after"] as const)(
  "an artifact whose publication failed %s the board had it is published again under the same id",
  async (moment) => {
    board.failures.push(moment, moment, moment);
    start();
    await schedule.add([later(1_000)]);
    await empty();
    expect(board.artifacts).toHaveLength(1);
  },
);

test("servers share the due artifacts: each is published by one of them", async () => {
  const entries = Array.from({ length: 500 }, () => later(1_000));
  await schedule.add(entries);
  await clock.advance(1_000);
  for (let i = 0; i < 4; i++) start();
  await until("all are published", () => board.artifacts.length === 500, { on: board });
  // The clock stands still, so that no server takes over another's unfinished publications.
  await until("nothing waits", async () => (await rows()).length === 0);
  expect(board.published).toHaveLength(500);
});

test("keeps everything while the board is down, and publishes it afterwards", async () => {
  board.failures.push(...Array.from({ length: 30 }, () => "before" as const));
  await schedule.add(Array.from({ length: 20 }, () => later(0)));
  start();
  await empty();
  expect(board.artifacts).toHaveLength(20);
});

test("an artifact that the board always refuses does not block the others", async () => {
  const entries = Array.from({ length: 20 }, () => later(1_000));
  const poison = entries[3]!.artifact.id;
  board.refuses = ({ id }) => id === poison;
  await schedule.add(entries);
  await clock.advance(1_000);
  start();
  await until("the others are published", () => board.artifacts.length === 19, { on: board });
  board.refuses = () => false;
  await empty();
  expect(board.artifacts).toHaveLength(20);
});
