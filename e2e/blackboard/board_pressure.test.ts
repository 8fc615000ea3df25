import { agent, type Khala } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { BACKENDS } from "@khala/test-support/servers/backends";
import {
  ADA,
  arrived,
  boardServers,
  Held,
  idle,
  listed,
  publish,
  stands,
} from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

const stateOf = async ({ blackboard }: Khala, name: string) =>
  (await blackboard.agents()).find((each) => each.name === name)?.state;

interface Refusal {
  readonly code?: string;
  readonly details?: { readonly retry_after_ms?: number };
}

describe.each(BACKENDS)("on %s", { timeout: 120_000 }, (backend) => {
  test("slows, then refuses publishing when an agent lags, and still settles running tasks with their outputs", async () => {
    await using servers = await boardServers(backend);
    const [stuck, held] = [new Held(), new Held()];
    const lagging = agent("lagging", {
      consumes: ["Job", "Note"],
      concurrency: 1,
      run: ({ artifact }, signal) => stuck.wait(artifact.id, signal),
    });
    const worker = agent("worker", {
      consumes: "Job",
      concurrency: 50,
      order: "none",
      async run({ artifact }, signal) {
        await held.wait(artifact.id, signal);
        return { type: "Result", payload: artifact.payload };
      },
    });
    const next = agent("next", { consumes: "Result", run: () => ({ type: "Final", payload: null }) });
    const settings = { KHALA_BOARD_LAG_SLOW: "1", KHALA_BOARD_LAG_REFUSE: "20" };
    const clock = new JumpClock();
    const khala = await servers.start({ agents: [lagging, worker, next], settings, clock });
    const jobs = (count: number) =>
      Array.from({ length: count }, (_, payload) => ({ type: "Job", payload, correlation_id: "c" }));
    const note = () => khala.blackboard.publish(ADA, [{ type: "Note", payload: null }]);
    /** Waits until so many tasks wait for the agent, and that is what publishers are held back by. */
    const lags = async (least: number, most: number) => {
      await eventually("the agent lags so far", async () => {
        const own = (await khala.blackboard.lag()).filter(({ reader }) => reader === "lagging");
        const lag = own.reduce((sum, each) => sum + Number(each.lag), 0);
        return lag >= least && lag <= most;
      });
      // The figure that the server has is old by now.
      clock.jump(6_000);
    };
    const refused = () =>
      eventually("publishing is refused", () =>
        note().then(
          () => false,
          (error: Refusal) => {
            expect(error.code).toBe("limit_exceeded");
            return Number(error.details?.retry_after_ms) > 0;
          },
        ),
      );

    await publish(khala, ...jobs(14));
    await lags(13, 14);
    // Each publication waits for (lag - 1) / 19 of a second.
    await eventually("one publication after the other is slowed", async () => {
      for (let i = 0; i < 3; i++) {
        const from = performance.now();
        await note();
        if (performance.now() - from < 600) return false;
      }
      return true;
    });

    await publish(khala, ...jobs(16));
    await lags(29, 100);
    await refused();
    held.release();
    await arrived(khala, "Final", 30);
    await idle(khala, "worker");
    await refused();

    stuck.release();
    expect(await stands(khala, "c", "done")).toMatchObject({ artifacts: "90", done: "90", dead: "0" });
    await lags(0, 0);
    await eventually("publishing is free again", () => note().catch(() => false));
  });

  test("a paused agent does not delay publishers", async () => {
    await using servers = await boardServers(backend);
    const lazy = agent("lazy", { consumes: "Job", run: () => undefined });
    const settings = { KHALA_BOARD_LAG_SLOW: "1", KHALA_BOARD_LAG_REFUSE: "2" };
    const clock = new JumpClock();
    const khala = await servers.start({ agents: [lazy], settings, clock });
    await khala.blackboard.pause("lazy");
    await publish(khala, ...Array.from({ length: 10 }, (_, payload) => ({ type: "Job", payload })));
    await eventually("they are routed", async () => {
      const [state] = await khala.blackboard.agents();
      return state?.waiting === "10";
    });
    // The figure that it has is old by now.
    clock.jump(10_000);
    await publish(khala, { type: "Job", payload: "one more" });
  });

  test("one org's backlog delays neither another org nor other types", async () => {
    await using servers = await boardServers(backend);
    const stuck = new Held();
    const busy = agent("busy", {
      consumes: "Job",
      run: ({ artifact }, signal) => stuck.wait(artifact.id, signal),
    });
    const settings = { KHALA_BOARD_LAG_SLOW: "10", KHALA_BOARD_LAG_REFUSE: "20" };
    const clock = new JumpClock();
    const khala = await servers.start({ agents: [busy], settings, clock });
    await publish(khala, ...Array.from({ length: 30 }, (_, payload) => ({ type: "Job", payload })));
    await eventually("they wait", async () => {
      const [state] = await khala.blackboard.agents();
      return Number(state?.waiting) + Number(state?.running) === 30;
    });
    const job = [{ type: "Job", payload: "one more" }];
    // A reading of the lag that takes too long is not waited for: the next one counts.
    const refused = await eventually("the refusal", async () => {
      // The figure that it has is old by now.
      clock.jump(10_000);
      return khala.blackboard.publish(ADA, job).then(
        () => undefined,
        (error: unknown) => error,
      );
    });
    expect(refused).toMatchObject({ code: "limit_exceeded", details: { field: "waiting_tasks" } });
    await khala.blackboard.publish(ADA, [{ type: "Note", payload: null }]);
    await khala.blackboard.publish({ ...ADA, org: "another" }, job);
    stuck.release();
  });
});

describe("breakers", () => {
  test("tasks held by a server with an open breaker run on a healthy one, long before the lease ends", async () => {
    await using servers = await boardServers();
    const how = { consumes: "Job", concurrency: 50, order: "none" } as const;
    const retry = { attempts: 1_000, base: 1, cap: 1 };
    const ill = agent("worker", {
      ...how,
      retry,
      run() {
        throw new Error("The model is away.");
      },
    });
    const well = agent("worker", { ...how, retry, run: () => ({ type: "Result", payload: null }) });
    const settings = { KHALA_BOARD_LEASE_MS: "600000", KHALA_BOARD_CONCURRENCY: "1" };
    const first = await servers.start({ agents: [ill], settings });
    await publish(first, ...Array.from({ length: 60 }, (_, payload) => ({ type: "Job", payload })));
    await eventually("the breaker is open", async () => (await stateOf(first, "worker")) === "open");
    const second = await servers.start({ agents: [well], settings });
    await arrived(second, "Result", 60);
  });

  test("the breaker of a failing agent opens, tries one task, and closes after a success", async () => {
    await using servers = await boardServers();
    const clock = new JumpClock();
    let broken = true;
    let runs = 0;
    const worker = agent("worker", {
      consumes: "Job",
      order: "none",
      concurrency: 1,
      retry: { attempts: 50, base: 1, cap: 1 },
      run() {
        runs++;
        if (broken) throw new Error("The model is away.");
        return { type: "Result", payload: null };
      },
    });
    const khala = await servers.start({ agents: [worker], clock });
    await publish(khala, ...Array.from({ length: 10 }, (_, payload) => ({ type: "Job", payload })));
    const is = (state: string) =>
      eventually(`the breaker is ${state}`, async () => (await stateOf(khala, "worker")) === state);
    await is("open");
    const before = runs;
    clock.jump(60_000);
    await eventually("one tried", () => runs > before);
    await is("open");
    broken = false;
    await eventually("the work is done", async () => {
      clock.jump(600_000);
      return (await listed(khala, "Result")).length === 10;
    });
    await is("running");
    expect((await khala.blackboard.deadLetters(ADA, "worker", { limit: 1 })).deadLetters).toEqual([]);
  });
});
