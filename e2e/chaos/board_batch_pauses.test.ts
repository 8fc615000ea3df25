import { type AgentTask, agent, type Khala } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { BACKENDS } from "@khala/test-support/servers/backends";
import { ADA, arrived, boardServers, idle, publish, stands } from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

const HOUR = 3_600_000;
const SIZE = 3;

/** An agent that writes down its batches, one beside it that shows how far things have come, and the clock of both. */
function collecting() {
  const batches: unknown[][] = [];
  const collector = agent("collector", {
    consumes: "Job",
    batch: { size: SIZE, timeout: HOUR },
    // Longer than all leaps of the clock: what takes too long would be tried again.
    timeout: 500 * HOUR,
    async run({ artifacts }: AgentTask) {
      batches.push(artifacts.map(({ payload }) => payload));
      await new Promise(setImmediate);
      return { type: "Batch", payload: artifacts.length };
    },
  });
  const witness = agent("witness", { consumes: "Job", run: () => ({ type: "Seen", payload: null }) });
  return { batches, parts: { agents: [collector, witness], clock: new JumpClock() } };
}

const jobs = (correlation_id: string, ...payloads: string[]) =>
  payloads.map((payload) => ({ type: "Job", payload, correlation_id, partition_key: "k" }));
/** Waits until a server knows that so many of a correlation wait for what is said. */
const waits = ({ blackboard }: Khala, correlationId: string, what: "gathering" | "paused", count: number) =>
  eventually(
    `${count} of ${correlationId} wait (${what})`,
    async () => (await blackboard.correlation(ADA, correlationId))?.waits?.[what] === String(count),
  );
/** Lets the time of what waits run out, until all of these have come in batches, each once. */
async function allCame(clock: JumpClock, batches: readonly unknown[][], payloads: readonly string[]) {
  let leapt = Number.NEGATIVE_INFINITY;
  await eventually("all have come", () => {
    // Not so often that days pass, and with them what is remembered.
    if (performance.now() - leapt > 1_000) {
      leapt = performance.now();
      clock.jump(HOUR);
    }
    return batches.flat().length >= payloads.length;
  });
  expect(batches.flat().toSorted()).toEqual([...payloads].sort());
}

/** Starts the correlation: no agent consumes it, and who published it may pause the correlation. */
const START = { type: "Start", payload: null, correlation_id: "c" };

describe.each(BACKENDS)("on %s", { timeout: 120_000 }, (backend) => {
  test("a paused batch agent continues where it was, also after a restart: each once, in order", async () => {
    await using servers = await boardServers(backend);
    const { batches, parts } = collecting();
    const first = await servers.start(parts);
    await publish(first, ...jobs("c", "0", "1"));
    await waits(first, "c", "gathering", 2);
    await first.blackboard.pause("collector");
    await publish(first, ...jobs("c", "2", "3", "4", "5", "6"));
    await arrived(first, "Seen", 7);
    await servers.stop(first);

    const second = await servers.start(parts);
    await publish(second, ...jobs("c", "7", "8", "9"));
    await arrived(second, "Seen", 10);
    expect(batches).toEqual([]);
    await second.blackboard.resume("collector");
    await eventually("all full batches have come", () => batches.length >= 3);
    await waits(second, "c", "gathering", 1);
    await allCame(parts.clock, batches, [..."0123456789"]);
    expect(batches).toEqual([["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8"], ["9"]]);
    await arrived(second, "Batch", 4);
    await idle(second, "collector");
    expect(await stands(second, "c", "done")).toMatchObject({ open: "0", dead: "0" });
  });

  test("artifacts of a paused correlation wait for their batch, over a restart, and other batches run", async () => {
    await using servers = await boardServers(backend);
    const { batches, parts } = collecting();
    const first = await servers.start(parts);
    await publish(first, ...jobs("d", "d0"));
    await waits(first, "d", "gathering", 1);
    await publish(first, START);
    await first.blackboard.pauseCorrelation(ADA, "c");
    await publish(first, ...jobs("c", "c0", "c1"));
    // Of each there is a task for the witness, too.
    await waits(first, "c", "paused", 4);
    await publish(first, ...jobs("d", "d1", "d2"));
    await eventually("the batch of the others", () => batches.length > 0);
    await servers.stop(first);

    const second = await servers.start(parts);
    await publish(second, ...jobs("c", "c2", "c3"));
    await waits(second, "c", "paused", 8);
    expect(batches).toEqual([["d0", "d1", "d2"]]);
    await second.blackboard.resumeCorrelation(ADA, "c");
    await eventually("the batch of those that were paused", () => batches.length > 1);
    await waits(second, "c", "gathering", 1);
    expect(batches[1]).toEqual(["c0", "c1", "c2"]);
    await publish(second, ...jobs("d", "d3", "d4"));
    await allCame(parts.clock, batches, ["c0", "c1", "c2", "c3", "d0", "d1", "d2", "d3", "d4"]);
    await idle(second, "collector");
    for (const id of ["c", "d"])
      expect(await stands(second, id, "done")).toMatchObject({ open: "0", dead: "0" });
  });

  test("pausing a correlation neither loses nor repeats artifacts already in a batch", async () => {
    await using servers = await boardServers(backend);
    const { batches, parts } = collecting();
    const first = await servers.start(parts);
    await publish(first, ...jobs("c", "c0"), ...jobs("d", "d0"));
    for (const id of ["c", "d"]) await waits(first, id, "gathering", 1);
    await first.blackboard.pauseCorrelation(ADA, "c");
    await publish(first, ...jobs("c", "c1"), ...jobs("d", "d1", "d2"));
    await arrived(first, "Seen", 4);
    await servers.stop(first);

    const second = await servers.start(parts);
    await publish(second, ...jobs("c", "c2"), ...jobs("d", "d3"));
    await arrived(second, "Seen", 5);
    await second.blackboard.resumeCorrelation(ADA, "c");
    await arrived(second, "Seen", 7);
    await allCame(parts.clock, batches, ["c0", "c1", "c2", "d0", "d1", "d2", "d3"]);
    await idle(second, "collector");
    for (const id of ["c", "d"])
      expect(await stands(second, id, "done")).toMatchObject({ open: "0", dead: "0" });
    expect(batches.every(({ length }) => length <= SIZE)).toBe(true);
  });

  test("pausing and resuming a correlation and its batch agent any number of times runs each artifact once", async () => {
    await using servers = await boardServers(backend);
    const { batches, parts } = collecting();
    const khala = await servers.start(parts);
    const { blackboard } = khala;
    const published: string[] = [];
    await publish(khala, START);
    for (let round = 0; round < 6; round++) {
      const some = Array.from({ length: 10 }, (_, i) => `${round}.${i}`);
      published.push(...some);
      const publishing = publish(khala, ...jobs("c", ...some));
      await blackboard.pauseCorrelation(ADA, "c");
      await blackboard.pause("collector");
      if (round % 2) await publishing;
      await blackboard.resumeCorrelation(ADA, "c");
      await blackboard.resume("collector");
      await publishing;
    }
    await arrived(khala, "Seen", published.length);
    await allCame(parts.clock, batches, published);
    expect(await stands(khala, "c", "done")).toMatchObject({ open: "0", dead: "0" });
  });
});
