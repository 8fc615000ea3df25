import { type AgentTask, agent, type Khala } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { BACKENDS } from "@khala/test-support/servers/backends";
import {
  ADA,
  arrived,
  boardServers,
  buried,
  Held,
  idle,
  listed,
  publish,
  stands,
} from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

const TIMEOUT = { timeout: 120_000 };

/** An agent that writes down what it starts, by key. */
function recorder() {
  const started: AgentTask[] = [];
  const worker = agent("worker", {
    consumes: "Job",
    async run(task) {
      started.push(task);
      await new Promise(setImmediate);
      return { type: "Result", payload: task.artifact.payload };
    },
  });
  const byKey = () => {
    const keys = Map.groupBy(started, ({ artifact }) => artifact.partition_key ?? "");
    return Object.fromEntries(
      [...keys].map(([key, tasks]) => [key, tasks.map(({ artifact }) => artifact.payload)]),
    );
  };
  return { worker, started, byKey };
}

const KEYS = ["one", "two", "three"];
const jobs = (from: number, to: number, correlation_id: string) =>
  Array.from({ length: to - from }, (_, i) => ({
    type: "Job",
    payload: from + i,
    correlation_id,
    partition_key: KEYS[(from + i) % KEYS.length]!,
  }));
const inOrder = (count: number) =>
  Object.fromEntries(
    KEYS.map((key, n) => [
      key,
      Array.from({ length: count }, (_, i) => i).filter((i) => i % KEYS.length === n),
    ]),
  );

/** Waits until a server knows of so many tasks that a pause holds. */
const parked = ({ blackboard }: Khala, correlationId: string, count: number) =>
  eventually(`${count} tasks of ${correlationId} are parked`, async () => {
    const state = await blackboard.correlation(ADA, correlationId);
    return state?.status === "paused" && state.waits?.paused === String(count);
  });

/** Starts the correlation: no agent consumes it, and who published it may pause the correlation. */
const START = { type: "Start", payload: null, correlation_id: "c" };

describe.each(BACKENDS)("on %s", TIMEOUT, (backend) => {
  test("only the tasks of a paused correlation wait, and they continue in order", async () => {
    await using servers = await boardServers(backend);
    const { worker, started, byKey } = recorder();
    const [one, two] = [await servers.start({ agents: [worker] }), await servers.start({ agents: [worker] })];
    await publish(one, START);
    await one.blackboard.pauseCorrelation(ADA, "c");
    await stands(two, "c", "paused");
    await publish(two, ...jobs(0, 30, "c"));
    await parked(two, "c", 30);
    await eventually("they are what is open", async () => {
      const { open, done } = await stands(one, "c", "paused");
      return open === "30" && done === "0";
    });
    await publish(one, ...jobs(0, 3, "d"));
    await arrived(one, "Result", 3);
    expect(started.every(({ correlationId }) => correlationId === "d")).toBe(true);
    started.length = 0;

    expect(await two.blackboard.resumeCorrelation(ADA, "c")).toBe(0);
    await publish(two, ...jobs(30, 40, "c"));
    await arrived(one, "Result", 43);
    expect(await stands(one, "c", "done")).toMatchObject({ artifacts: "81", open: "0", done: "40" });
    expect(byKey()).toEqual(inOrder(40));
    // It is the same work as before the pause.
    expect(started.map(({ id, idempotencyKey }) => idempotencyKey === `${id}:worker@acme`)).not.toContain(
      false,
    );
  });

  test("a pause survives a restart, and held tasks run after it is resumed", async () => {
    await using servers = await boardServers(backend);
    const { worker, started, byKey } = recorder();
    const first = await servers.start({ agents: [worker] });
    await publish(first, START);
    await first.blackboard.pauseCorrelation(ADA, "c");
    await publish(first, ...jobs(0, 6, "c"));
    await parked(first, "c", 6);
    await servers.stop(first);
    const second = await servers.start({ agents: [worker] });
    await publish(second, ...jobs(6, 12, "c"));
    await parked(second, "c", 12);
    expect(started).toEqual([]);
    await second.blackboard.resumeCorrelation(ADA, "c");
    await arrived(second, "Result", 12);
    await stands(second, "c", "done");
    expect(byKey()).toEqual(inOrder(12));
  });

  test("pausing and resuming any number of times starts each task once and in order", async () => {
    await using servers = await boardServers(backend);
    const { worker, byKey } = recorder();
    const khala = await servers.start({ agents: [worker] });
    const { blackboard } = khala;
    let published = 0;
    await publish(khala, START);
    for (let round = 0; round < 8; round++) {
      const publishing = publish(khala, ...jobs(published, published + 20, "c"));
      published += 20;
      await blackboard.pauseCorrelation(ADA, "c");
      if (round % 2) await publishing;
      await blackboard.resumeCorrelation(ADA, "c");
      await publishing;
    }
    await arrived(khala, "Result", published);
    expect(await stands(khala, "c", "done")).toMatchObject({ done: String(published), open: "0" });
    expect(byKey()).toEqual(inOrder(published));
  });

  test("cancelling a paused correlation makes dead letters, and resuming runs them", async () => {
    await using servers = await boardServers(backend);
    const { worker, started } = recorder();
    const khala = await servers.start({ agents: [worker] });
    await publish(khala, START);
    await khala.blackboard.pauseCorrelation(ADA, "c");
    await publish(khala, ...jobs(0, 5, "c"));
    await parked(khala, "c", 5);
    await khala.blackboard.cancel(ADA, "c");
    const letters = await buried(khala, "worker", 5);
    expect(new Set(letters.map(({ failure }) => failure.class))).toEqual(new Set(["Cancelled"]));
    expect(await stands(khala, "c", "cancelled")).toMatchObject({ open: "0", done: "0", dead: "5" });
    expect(started).toEqual([]);
    expect(await khala.blackboard.resumeCorrelation(ADA, "c")).toBe(5);
    await arrived(khala, "Result", 5);
    expect(await stands(khala, "c", "done")).toMatchObject({ done: "5", dead: "0" });
  });

  test("cancelling an agent aborts running tasks and drops waiting ones; later tasks run", async () => {
    await using servers = await boardServers(backend);
    const held = new Held();
    let holding = true;
    const slow = agent("slow", {
      consumes: "Job",
      concurrency: 2,
      order: "none",
      async run({ artifact }, signal) {
        if (holding) await held.wait(artifact.id, signal);
        return { type: "Result", payload: artifact.payload };
      },
    });
    const other = agent("other", { consumes: "Job", run: () => ({ type: "Seen", payload: null }) });
    const agents = [slow, other];
    const [one, two] = [await servers.start({ agents }), await servers.start({ agents })];
    await publish(one, ...Array.from({ length: 12 }, (_, payload) => ({ type: "Job", payload })));
    await eventually("some run", () => held.started.length >= 2);
    await arrived(two, "Seen", 12);
    await two.blackboard.cancelAgent("slow");
    holding = false;
    const letters = await buried(one, "slow", 12);
    expect(new Set(letters.map(({ failure }) => failure.class))).toEqual(new Set(["Cancelled"]));
    expect(held.aborted.toSorted()).toEqual(held.started.toSorted());
    expect(await listed(one, "Result")).toEqual([]);
    expect((await one.blackboard.deadLetters(ADA, "other", { limit: 1 })).deadLetters).toEqual([]);

    await publish(two, { type: "Job", payload: "new" });
    await arrived(one, "Result");
    expect(await one.blackboard.replayAll(ADA, "slow", {})).toMatchObject({ replayed: 12 });
    await arrived(two, "Result", 13);
    await idle(one, "slow");
    expect(await listed(one, "Result")).toHaveLength(13);
  });
});
