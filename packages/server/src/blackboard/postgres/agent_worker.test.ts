import { makeTestArtifact, range } from "@khala/test-support/conformance/board/support";
import { done } from "@khala/test-support/conformance/board/worker";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { describe, expect, test } from "vitest";
import type { Settlement } from "../model/task.ts";
import { AgentWorker } from "./agent_worker.ts";
import type { Claim } from "./statements.ts";

const COUNT = 300;
const CONCURRENCY = 20;

/** An agent that is given its tasks with one claim, and what it settles together. */
async function consuming(how: {
  handle(clock: ManualClock): Promise<Settlement> | Settlement;
  gate?(begun: number): Promise<void>;
}) {
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const left: Claim[] = range(1, COUNT).map((n) => {
    const artifact = makeTestArtifact({ to: "a" });
    const task = { id: artifact.id, agent: "a", artifacts: [artifact] as const, key: `${n}`, attempt: 1 };
    return { seq: BigInt(n), org: "acme", lane: "", task: { ...task, created_at: artifact.created_at } };
  });
  const commits: number[] = [];
  let begun = 0;
  const worker = new AgentWorker(
    context,
    {
      agent: "a",
      order: "none",
      strict: false,
      concurrency: CONCURRENCY,
      gate: () => how.gate?.(begun) ?? Promise.resolve(),
      handle() {
        begun++;
        return how.handle(clock);
      },
    },
    {
      async claim() {
        const claims = left.splice(0);
        // The next claim takes as long as it takes to work on the first ones.
        if (claims.length === 0) await until("all are settled", () => settled() === COUNT);
        return { claims, full: false, nextDueMs: undefined };
      },
      async settle(finished) {
        commits.push(finished.length);
        return finished.map(() => ({ ok: true }));
      },
      hold() {},
      drop() {},
      async release() {},
    },
    { stopMs: 0 },
  );
  const settled = () => commits.reduce((sum, count) => sum + count, 0);
  return { commits, settled, [Symbol.asyncDispose]: () => worker.stop() };
}

describe("a sequence of tasks that end at once", () => {
  test("is settled in one commit, within the concurrency", async () => {
    await using agent = await consuming({ handle: () => done() });
    await until("all are settled", () => agent.settled() === COUNT);
    expect(agent.commits).toEqual([COUNT]);
  });

  test("waits at most ten milliseconds for further tasks", async () => {
    await using agent = await consuming({
      handle(clock) {
        void clock.advance(1);
        return done();
      },
    });
    await until("all are settled", () => agent.settled() === COUNT);
    expect(agent.commits).toEqual(range(1, COUNT / CONCURRENCY).map(() => CONCURRENCY));
  });

  test("does not wait at a closed gate", async () => {
    const gate = Promise.withResolvers<void>();
    await using agent = await consuming({
      handle: () => done(),
      gate: (begun) => (begun < 2 * CONCURRENCY ? Promise.resolve() : gate.promise),
    });
    await until("some are settled", () => agent.settled() > 0);
    expect(agent.commits).toEqual([2 * CONCURRENCY]);
    gate.resolve();
    await until("all are settled", () => agent.settled() === COUNT);
  });
});

test("settles later tasks together that end at the same moment", async () => {
  const works: PromiseWithResolvers<Settlement>[] = [];
  await using agent = await consuming({
    handle() {
      const work = Promise.withResolvers<Settlement>();
      works.push(work);
      return work.promise;
    },
  });
  await until("they have begun", () => works.length === CONCURRENCY);
  for (const work of works.slice(0, 5)) work.resolve(done());
  await until("five are settled", () => agent.settled() === 5);
  expect(agent.commits).toEqual([5]);
  for (const work of works) work.resolve(done());
});
