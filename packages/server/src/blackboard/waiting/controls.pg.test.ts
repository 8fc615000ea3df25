import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { CONTROLS_WAKEUP, type Controls, openControls } from "./controls.ts";
import { startRetention } from "./retention.ts";

const HOUR = 3_600_000;

let own: TestDatabase;
let clock: ManualClock;
let servers: Controls[];
let wakeupsOn: boolean;
beforeAll(async () => {
  own = await testDatabase({ poolSize: 8 });
});
beforeEach(async () => {
  await own.database.query({ text: "TRUNCATE runtime.board_controls" });
  clock = new ManualClock();
  servers = [];
  wakeupsOn = true;
  return async () => void (await Promise.all(servers.map((server) => server.stop())));
});
afterAll(() => own[Symbol.asyncDispose]());

async function start(): Promise<Controls> {
  const send = (name: string) => {
    expect(name).toBe(CONTROLS_WAKEUP);
    for (const other of wakeupsOn ? servers : []) if (other !== server) other.onWakeup();
  };
  const context = await testContext({ clock });
  const server = await openControls(own.database, context, {
    wakeups: { send },
    pollMs: 1_000,
    keepMs: HOUR,
  });
  servers.push(server);
  return server;
}

const forever = new AbortController().signal;

test("a paused agent is held on every server until it is resumed on any", async () => {
  const [a, b] = [await start(), await start()];
  await a.pause("reviewer");
  expect(a.paused("reviewer")).toBe(true);
  await until("the other knows", () => b.paused("reviewer"));
  const opened: string[] = [];
  const gates = [a, b].map((server, i) => server.gate("reviewer", forever).then(() => opened.push(`${i}`)));
  await a.gate("writer", forever);
  expect(opened).toEqual([]);
  await b.resume("reviewer");
  await Promise.all(gates);
  expect(opened.sort()).toEqual(["0", "1"]);
});

test("a gate opens when its signal aborts", async () => {
  const server = await start();
  await server.pause("reviewer");
  const stopping = new AbortController();
  const gate = server.gate("reviewer", stopping.signal);
  stopping.abort();
  await gate;
  await server.gate("reviewer", stopping.signal);
});

test("a starting server knows what is paused and cancelled", async () => {
  const first = await start();
  await first.pause("reviewer");
  await first.cancel("acme", "c");
  await first.pause("writer");
  await first.resume("writer");
  const second = await start();
  expect(second.paused("reviewer")).toBe(true);
  expect(second.paused("writer")).toBe(false);
  expect(second.cancelled("acme", "c")).toBe(true);
});

test("notifies every server once of a cancellation, which is the org's own", async () => {
  const [a, b] = [await start(), await start()];
  const heard: string[] = [];
  for (const [name, server] of Object.entries({ a, b }))
    server.onCancel((org, correlationId) => heard.push(`${name} ${org} ${correlationId}`));
  await a.cancel("acme", "c");
  await b.cancel("acme", "c");
  await until("the other knows", () => b.cancelled("acme", "c"));
  expect(heard.sort()).toEqual(["a acme c", "b acme c"]);
  expect(a.cancelled("zeta", "c")).toBe(false);
  expect(a.cancelled("acme", undefined)).toBe(false);
  await b.uncancel("acme", "c");
  await until("it is lifted", () => !a.cancelled("acme", "c") && !b.cancelled("acme", "c"));
});

test("the next poll finds a change whose wakeup was lost", async () => {
  wakeupsOn = false;
  const [a, b] = [await start(), await start()];
  const paused: string[] = [];
  b.onPause((agent) => paused.push(agent));
  await a.pause("reviewer");
  await until("a poll has found it", async () => {
    await clock.advance(1_000);
    return b.paused("reviewer");
  });
  expect(paused).toEqual(["reviewer"]);
});

test("concurrent changes of many servers reach every server", async () => {
  const all = [await start(), await start(), await start()];
  const names = Array.from({ length: 60 }, (_, i) => `c${i}`);
  await Promise.all(names.map((name, i) => all[i % 3]!.cancel("acme", name)));
  for (const server of all)
    await until("it knows all", async () => {
      await clock.advance(1_000);
      return names.every((name) => server.cancelled("acme", name));
    });
});

test("forgets a cancellation after its time, in the table and on each server, but not a pause", async () => {
  const server = await start();
  await server.pause("reviewer");
  await server.cancel("acme", "old");
  await clock.advance(HOUR - 1);
  await server.cancel("acme", "new");
  await clock.advance(2_000);
  const purge = startRetention(own.database, await testContext({ clock }), { keepMs: HOUR });
  const names = async () =>
    (await own.database.query({ text: "SELECT name FROM runtime.board_controls ORDER BY name" })).map(
      ({ name }) => name,
    );
  await until("the old one is gone", async () => !(await names()).includes("old"));
  expect(await names()).toEqual(["new", "reviewer"]);
  await until("the server has forgotten it", async () => {
    await clock.advance(1_000);
    return !server.cancelled("acme", "old");
  });
  expect(server.cancelled("acme", "new")).toBe(true);
  await purge.stop();
});

test("refuses a name that no correlation can have", async () => {
  const server = await start();
  for (const name of ["x".repeat(513), "a\0b"])
    await expect(server.cancel("acme", name)).rejects.toMatchObject({ code: "invalid_request" });
});
