import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { RecordingBoard, testArtifact } from "@khala/test-support/kit/recording_board";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Service } from "../../kit/service.ts";
import type { Schedule } from "../model/agent.ts";
import { checkSchedules, firingId, startCron } from "./cron.ts";
import { startOutbox } from "./outbox.ts";

const MINUTE = 60_000;
const START = Date.UTC(2026, 0, 1, 0, 0, 30);
const everyMinute: Schedule = { name: "tick", cron: "* * * * *", org: "acme", artifact: { type: "Tick" } };

let own: TestDatabase;
let clock: ManualClock;
let board: RecordingBoard;
let open: Service[];
beforeAll(async () => {
  own = await testDatabase({ poolSize: 8 });
});
beforeEach(async () => {
  await own.database.query({ text: "TRUNCATE runtime.board_schedules, runtime.board_outbox" });
  clock = new ManualClock(START);
  board = new RecordingBoard();
  open = [];
  return stopAll;
});
afterAll(() => own[Symbol.asyncDispose]());

const stopAll = async () => void (await Promise.all(open.splice(0).map((service) => service.stop())));

/** A server, as far as its schedules are concerned. */
async function start(schedule = everyMinute, make = (_: Schedule, id: string) => testArtifact(id)) {
  const context = await testContext({ clock });
  const outbox = startOutbox(own.database, board, context, { pollMs: 100 });
  const cron = startCron(own.database, context, { schedules: checkSchedules([schedule]), make, outbox });
  open.push(cron, outbox);
}

const firings = () => board.artifacts.map(({ id }) => id).sort();
const fired = (...minutes: number[]) =>
  minutes.map((minute) => firingId("tick", Date.UTC(2026, 0, 1, 0, minute)));
const passing = (what: string, stepMs: number, condition: () => unknown) =>
  until(what, async () => {
    await clock.advance(stepMs);
    return (await condition()) as boolean;
  });
const count = (n: number) => passing(`${n} firings`, 100, () => firings().length >= n);

test("fires each time once, however many servers run", async () => {
  await start();
  await start();
  await start();
  for (const n of [1, 2, 3]) {
    await clock.advance(MINUTE - (clock.now() % MINUTE));
    await count(n);
  }
  expect(firings()).toEqual(fired(1, 2, 3));
  // A minute is longer than a claim on the outbox: a firing may be sent again, and the board recognises its id.
  expect(new Set(board.published.map(({ id }) => id)).size).toBe(3);
});

test("makes up for the last of the times missed while no server ran", async () => {
  await start();
  await stopAll();
  await clock.advance(10 * MINUTE);
  await Promise.all([start(), start()]);
  await count(1);
  await stopAll();
  await start();
  await clock.advance(MINUTE - (clock.now() % MINUTE));
  await count(2);
  expect(firings()).toEqual(fired(10, 11));
});

test("a new schedule, or a changed pattern, starts with its next time", async () => {
  await start();
  await stopAll();
  await clock.advance(10 * MINUTE);
  await start({ ...everyMinute, cron: "*/2 * * * *" });
  expect(firings()).toEqual([]);
  await clock.advance(2 * MINUTE);
  await count(1);
  expect(firings()).toEqual(fired(12));
});

test("publishes a firing that a dead server had not published", async () => {
  board.refuses = () => true;
  await start();
  await clock.advance(MINUTE);
  await until("it is written down", async () => {
    const rows = await own.database.query({ text: "SELECT FROM runtime.board_outbox" });
    return rows.length > 0;
  });
  await stopAll();
  board.refuses = () => false;
  await start();
  await count(1);
  expect(firings().slice(0, 1)).toEqual(fired(1));
});

test("a schedule whose artifact cannot be made does not block the others", async () => {
  await start(everyMinute, () => {
    throw new Error("the payload does not fit its schema");
  });
  await start({ ...everyMinute, name: "other" });
  await clock.advance(MINUTE);
  await count(1);
  expect(firings()).toEqual([firingId("other", Date.UTC(2026, 0, 1, 0, 1))]);
});
