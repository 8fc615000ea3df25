import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { openEngineCache } from "./engine_cache.ts";

async function enginesOf({ max = 2, idleMs = 1_000 } = {}) {
  const clock = new ManualClock();
  const made: string[] = [];
  const closed: string[] = [];
  const engines = openEngineCache(await testContext({ clock }), {
    max,
    idleMs,
    factory: ({ convId }) => {
      made.push(convId);
      return {
        async *run() {},
        close() {
          closed.push(convId);
        },
      };
    },
  });
  const use = (convId: string, { org = "acme", generation = 1n } = {}) =>
    engines.checkOut({ convId, org, subject: "ada", generation });
  return { clock, engines, use, made, closed };
}

test("a conversation's next turn gets the engine of its last turn", async () => {
  const { use, made, closed } = await enginesOf();
  const first = use("a");
  first.release();
  expect(use("a").engine).toBe(first.engine);
  expect(made).toEqual(["a"]);
  expect(closed).toEqual([]);
});

test("closes an idle engine after a while, and never one in use", async () => {
  const { clock, use, closed, engines } = await enginesOf();
  use("busy");
  use("idle").release();
  await clock.advance(1_000);
  expect(closed).toEqual(["idle"]);
  expect(engines.size).toBe(1);
});

test("evicts the longest idle engine when the cache is full", async () => {
  const { use, closed, engines } = await enginesOf({ max: 2 });
  const b = use("b");
  use("a").release();
  b.release();
  use("c");
  await new Promise(setImmediate);
  expect(closed).toEqual(["a"]);
  expect(engines.size).toBe(2);
});

test("refuses another engine when all of them are in use", async () => {
  const { use } = await enginesOf({ max: 1 });
  use("a");
  expect(() => use("b")).toThrow(expect.objectContaining({ name: "PublicError", code: "rate_limited" }));
});

test("does not reuse an engine that misbehaved", async () => {
  const { use, made, closed } = await enginesOf();
  use("a").release(true);
  use("a");
  await new Promise(setImmediate);
  expect(closed).toEqual(["a"]);
  expect(made).toEqual(["a", "a"]);
});

test("closes every engine once when the server stops, and leaves no timer", async () => {
  const { clock, use, engines, closed } = await enginesOf();
  use("a");
  use("b").release();
  await engines.stop();
  expect(closed.sort()).toEqual(["a", "b"]);
  expect(engines.size).toBe(0);
  expect(clock.pending).toBe(0);
});

test("never reuses the engine of another org's conversation, or of a deleted one, for the same id", async () => {
  const { use, made } = await enginesOf({ max: 5 });
  const engines = [use("a"), use("a", { org: "zeta" }), use("a", { generation: 2n })].map((used) => {
    used.release();
    return used.engine;
  });
  expect(new Set(engines).size).toBe(3);
  expect(made).toEqual(["a", "a", "a"]);
  expect(use("a", { org: "zeta" }).engine).toBe(engines[1]);
});
