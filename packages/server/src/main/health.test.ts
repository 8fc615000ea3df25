import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import type { BlackboardPlane } from "../blackboard/plane.ts";
import { readConfig } from "./config.ts";
import { openHealth, openWorkerHealth } from "./health.ts";

const KAFKA = readConfig({ KAFKA_BOOTSTRAP_SERVERS: "broker:9092" });
const database = { query: async () => [] };
const clock = new ManualClock();
const context = { clock };
const asked = (lag: BlackboardPlane["lag"]) => {
  const health = openWorkerHealth(context, KAFKA);
  health.watch({ database, blackboard: { lag, problems: () => [] } });
  return health.check();
};

test("a worker whose board does not answer is unavailable, as it can do nothing else", async () => {
  const dead = async () => {
    throw new Error("No broker answers.");
  };
  expect(await asked(dead)).toMatchObject({
    database: { state: "ok" },
    blackboard: {
      state: "unavailable",
      backend: "kafka",
      message: expect.stringContaining("No broker answers."),
    },
  });
  expect(await asked(async () => [])).toMatchObject({ blackboard: { state: "ok", backend: "kafka" } });
});

test("reports a board that does not answer apart from the database", async () => {
  const silent = asked(() => new Promise(() => {}));
  await clock.advance(2_000);
  expect(await silent).toMatchObject({
    database: { state: "ok" },
    blackboard: { state: "unavailable", message: expect.stringContaining("No answer within 2000 ms") },
  });
});

test("a worker that is starting or stopping is unavailable, and uses no closed dependency", async () => {
  const health = openWorkerHealth(context, KAFKA);
  expect(await health.check()).toMatchObject({ blackboard: { state: "unavailable" } });
  const unwatch = health.watch({ database, blackboard: { lag: async () => [], problems: () => [] } });
  unwatch();
  expect(await health.check()).toMatchObject({ blackboard: { state: "unavailable" } });
});

test("does not report silence before the first poll", async () => {
  const time = new ManualClock();
  const health = openHealth({
    conversations: { draining: false },
    context: { clock: time },
    config: readConfig({}),
    database,
    sync: { projections: () => [], hub: { lastPoll: () => ({ heads: undefined, at: 0 }), open: () => [] } },
    chatLog: { bounds: async () => [] },
    blackboard: { lag: async () => [], problems: () => [] },
    auth: { keyring: { problems: () => [] } },
  });
  expect(await health()).toMatchObject({ delivery: { state: "ok" } });
  await time.advance(60_000);
  expect(await health()).toMatchObject({
    delivery: { state: "degraded", message: "The database was last polled 60000 ms ago." },
  });
});

test("is not ready while the database can be read only", async () => {
  const health = openWorkerHealth(context, readConfig({}));
  const readOnly = { query: async <T>() => [{ readOnly: "on" }] as T[] };
  health.watch({ database: readOnly, blackboard: { lag: async () => [], problems: () => [] } });
  expect(await health.check()).toMatchObject({
    database: { state: "unavailable", message: expect.stringContaining("accepts no writes") },
  });
});
