import fc from "fast-check";
import { expect, test } from "vitest";
import { z } from "zod";
import { testContext } from "../../../../e2e/support/context.ts";
import { ManualClock } from "../../../../e2e/support/manual_clock.ts";
import type { AgentOptions, AgentTask } from "./agent.ts";
import type { Artifact } from "./artifact.ts";
import { agent } from "./define_agent.ts";
import type { MadeArtifact } from "./drafts.ts";
import { FatalError, RateLimitedError, RetryableError } from "./errors.ts";
import { type ExecutorOptions, openExecutor, type RemoteWork } from "./execution.ts";
import { boardMetrics } from "./metrics.ts";
import { openEndedAttempts } from "./observer.ts";
import { openSlots } from "./slots.ts";
import { boardSpans } from "./spans.ts";
import type { Task } from "./task.ts";

const never = new AbortController().signal;
const settled = () => new Promise(setImmediate);
const DRAFT: Artifact = {
  id: "01890a5d-ac96-774b-bcce-b302099a8057",
  type: "Draft",
  payload: { words: 3 },
  correlation_id: "c-1",
  tags: [],
  produced_by: "user:u-1",
  visibility: { kind: "org" },
  version: 1,
  created_at: "2026-01-01T00:00:00.000Z",
  org_id: "org-1",
  depth: 2,
};

function taskWith(more: Partial<Task> = {}): Task {
  return {
    id: DRAFT.id,
    agent: "reviewer",
    artifacts: [DRAFT],
    key: "c-1",
    attempt: 1,
    created_at: DRAFT.created_at,
    ...more,
  };
}

async function executor(
  options: Partial<AgentOptions>,
  more: Partial<ExecutorOptions> & { remote?: RemoteWork } = {},
) {
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const { remote, ...shared } = more;
  const open = openExecutor(context, {
    slots: openSlots(10),
    metrics: boardMetrics(context.telemetry.meter, ["reviewer"]),
    spans: boardSpans(context, {
      system: "postgresql",
      artifacts: "artifacts",
      tasks: (name) => `tasks.${name}`,
    }),
    ended: openEndedAttempts(),
    schemas: {},
    maxDepth: 32,
    ...shared,
  });
  const made = agent("reviewer", { consumes: "Draft", ...options });
  return { clock, context, open, consumer: open.consumer(made, remote) };
}

const failing = (error: unknown) => ({
  run: () => {
    throw error;
  },
});

test("run is given the task, and what it returns is published in its name", async () => {
  let given: AgentTask | undefined;
  const { consumer } = await executor({
    run: async (task) => {
      given = task;
      return [
        { type: "Review", payload: { ok: true } },
        { type: "Note", payload: null, correlation_id: "own" },
      ];
    },
  });
  const settlement = await consumer.handle(taskWith(), never);
  expect(given).toMatchObject({
    id: DRAFT.id,
    artifact: DRAFT,
    artifacts: [DRAFT],
    correlationId: "c-1",
    attempt: 1,
    idempotencyKey: `${DRAFT.id}:reviewer`,
  });
  expect(settlement).toMatchObject({
    kind: "done",
    outputs: [
      {
        type: "Review",
        payload: { ok: true },
        org_id: "org-1",
        correlation_id: "c-1",
        produced_by: "agent:reviewer",
        depth: 3,
      },
      { type: "Note", correlation_id: "own", depth: 3 },
    ],
  });
});

test.each([undefined, null, []])("an agent may publish nothing: %j", async (output) => {
  const { consumer } = await executor({ run: (async () => output) as never });
  expect(await consumer.handle(taskWith(), never)).toEqual({ kind: "done", outputs: [] });
});

test("a second run publishes the same ids, a replay and another agent do not", async () => {
  const run = async () => [
    { type: "Review", payload: 1 },
    { type: "Review", payload: 2 },
  ];
  const { consumer, open } = await executor({ run });
  const other = open.consumer(agent("other", { consumes: "Draft", run }));
  const idsOf = async (task: Task, by = consumer) => {
    const settlement = await by.handle(task, never);
    return settlement.kind === "done" ? settlement.outputs.map(({ id }) => id) : [];
  };
  const first = await idsOf(taskWith());
  expect(first).toHaveLength(2);
  expect(await idsOf(taskWith({ attempt: 2 }))).toEqual(first);
  const replayed = await idsOf(taskWith({ replay_id: "r-1" }));
  const others = await idsOf(taskWith({ agent: "other" }), other);
  expect(new Set([...first, ...replayed, ...others]).size).toBe(6);
  for (const id of first) expect(id.slice(0, 13)).toBe(DRAFT.id.slice(0, 13));
});

test("without a correlation the first artifact's id is that of its outputs", async () => {
  const { consumer } = await executor({ run: async () => ({ type: "Review", payload: 1 }) });
  const { correlation_id: _, ...alone } = DRAFT;
  const settlement = await consumer.handle(taskWith({ artifacts: [alone] }), never);
  expect(settlement).toMatchObject({ outputs: [{ correlation_id: DRAFT.id }] });
});

test("what run does to its artifacts does not reach the retry", async () => {
  const task = taskWith();
  const { consumer } = await executor({
    run: ({ artifact }) => {
      (artifact.payload as { words: number }).words = 0;
      throw new Error("later");
    },
  });
  await consumer.handle(task, never);
  expect(task.artifacts[0].payload).toEqual({ words: 3 });
});

test("a chain that is too long ends as a dead letter, unless it publishes nothing", async () => {
  const deep = { ...DRAFT, depth: 32 };
  const { consumer } = await executor({ run: async () => ({ type: "Draft", payload: 1 }) });
  expect(await consumer.handle(taskWith({ artifacts: [DRAFT, deep] }), never)).toMatchObject({
    kind: "dead",
    failure: {
      class: "ChainTooLongError",
      kind: "fatal",
      message: expect.stringContaining("KHALA_BOARD_DEPTH"),
    },
  });
  const { consumer: sink } = await executor({ run: async () => undefined });
  expect(await sink.handle(taskWith({ artifacts: [deep] }), never)).toMatchObject({ kind: "done" });
});

test("an output that is not valid is a dead letter that names it", async () => {
  const schemas = { Review: z.object({ ok: z.boolean() }) };
  const outputs = [
    { type: "Review", payload: { ok: true } },
    { type: "Review", payload: { ok: "yes" } },
  ];
  const { consumer } = await executor({ run: async () => outputs }, { schemas });
  const settlement = await consumer.handle(taskWith(), never);
  expect(settlement).toMatchObject({ kind: "dead", failure: { class: "InvalidOutputError", kind: "fatal" } });
  expect(settlement).toHaveProperty(
    "failure.message",
    expect.stringContaining('Agent "reviewer" returned what cannot be published: outputs[1].payload.ok'),
  );
  const { consumer: chatty } = await executor({ run: (async () => "done") as never });
  expect(await chatty.handle(taskWith(), never)).toHaveProperty(
    "failure.message",
    expect.stringContaining("a string"),
  );
});

test("outputs for later are kept before the task is done, and not published now", async () => {
  const kept: MadeArtifact[] = [];
  const run = async () => [
    { type: "Review", payload: 1 },
    { type: "Reminder", payload: 2, not_before: "2026-01-02T00:00:00Z" },
  ];
  const { consumer } = await executor({ run }, { later: async (outputs) => void kept.push(...outputs) });
  expect(await consumer.handle(taskWith(), never)).toMatchObject({
    kind: "done",
    outputs: [{ type: "Review" }],
  });
  expect(kept).toMatchObject([{ artifact: { type: "Reminder" }, notBefore: Date.UTC(2026, 0, 2) }]);
  const broken = await executor({ run }, { later: () => Promise.reject(new Error("no database")) });
  expect(await broken.consumer.handle(taskWith(), never)).toMatchObject({
    kind: "retry",
    failure: { message: "no database" },
  });
});

test.each([
  ["any error", new Error("x"), "Error"],
  ["a TypeError", new TypeError("x"), "TypeError"],
  ["a SyntaxError", new SyntaxError("x"), "SyntaxError"],
  ["a RetryableError", new RetryableError("x"), "RetryableError"],
  ["what is no error", "x", "string"],
])("%s is tried again", async (_, error, name) => {
  const { consumer } = await executor(failing(error));
  const settlement = await consumer.handle(taskWith(), never);
  expect(settlement).toMatchObject({
    kind: "retry",
    failure: { class: name, message: "x", kind: "retryable" },
  });
});

test("a FatalError is dead at once", async () => {
  const { consumer } = await executor(failing(new FatalError("bad input")));
  const settlement = await consumer.handle(taskWith(), never);
  expect(settlement).toMatchObject({
    kind: "dead",
    failure: { class: "FatalError", message: "bad input", kind: "fatal" },
  });
});

test("a rate limit has its own delay", async () => {
  const { consumer } = await executor(failing(new RateLimitedError("slow down", 7_000)));
  const settlement = await consumer.handle(taskWith(), never);
  expect(settlement).toMatchObject({ kind: "retry", delayMs: 7_000, failure: { kind: "rate_limited" } });
});

test.each([
  [Number.NaN, 0],
  [-5, 0],
  [Number.POSITIVE_INFINITY, 86_400_000],
])("a rate limit of %s ms waits %i", async (ms, delayMs) => {
  const { consumer } = await executor(failing(new RateLimitedError("slow down", ms)));
  expect(await consumer.handle(taskWith(), never)).toMatchObject({ kind: "retry", delayMs });
});

test("classify says what other errors mean; those that say it themselves are not asked about", async () => {
  const classify = (error: unknown) =>
    error instanceof RangeError ? "fatal" : error instanceof TypeError ? { rateLimitedMs: 50 } : "retryable";
  const outcome = async (error: unknown, rule: unknown = classify) => {
    const { consumer } = await executor({ ...failing(error), retry: { classify: rule as typeof classify } });
    const settlement = await consumer.handle(taskWith(), never);
    return settlement.kind === "done" ? "done" : `${settlement.kind} ${settlement.failure.kind}`;
  };
  expect(await outcome(new RangeError())).toBe("dead fatal");
  expect(await outcome(new TypeError())).toBe("retry rate_limited");
  expect(await outcome(new Error())).toBe("retry retryable");
  expect(await outcome(new RetryableError(), () => "fatal")).toBe("retry retryable");
  expect(await outcome(new Error("kept"), failing(new Error("broken rule")).run)).toBe("retry retryable");
  expect(await outcome(new Error(), () => undefined)).toBe("retry retryable");
});

test("delays grow with the attempts, with jitter, up to the cap", async () => {
  const { consumer } = await executor(
    { ...failing(new Error("x")), retry: { attempts: 20, base: 100, cap: 1_000 } },
    { breaker: { failures: 1_000 } },
  );
  for (let attempt = 1; attempt < 20; attempt++) {
    const settlement = await consumer.handle(taskWith({ attempt }), never);
    const delay = settlement.kind === "retry" ? settlement.delayMs : Number.NaN;
    expect(delay).toBeGreaterThanOrEqual(50);
    expect(delay).toBeLessThanOrEqual(Math.min(1_000, 100 * 2 ** (attempt - 1)));
  }
});

test("the last attempt that fails is the end, whatever kind of failure it is", async () => {
  for (const error of [new Error("x"), new RateLimitedError("x", 5)]) {
    const { consumer } = await executor({ ...failing(error), retry: { attempts: 3 } });
    expect(await consumer.handle(taskWith({ attempt: 2 }), never)).toMatchObject({ kind: "retry" });
    expect(await consumer.handle(taskWith({ attempt: 3 }), never)).toMatchObject({ kind: "dead" });
  }
});

test("a task whose processes died each time is dead without being tried again", async () => {
  let ran = false;
  const run = async () => {
    ran = true;
  };
  const { consumer } = await executor({ run, retry: { attempts: 3 } });
  expect(await consumer.handle(taskWith({ attempt: 4 }), never)).toMatchObject({
    kind: "dead",
    failure: { class: "WorkerLost", kind: "fatal", message: expect.stringContaining("3 times") },
  });
  expect(ran).toBe(false);
});

test("an attempt that takes too long is told to stop and tried again", async () => {
  const { consumer, clock, context } = await executor({
    timeout: 1_000,
    run: (_, signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve(undefined))),
  });
  const settlement = consumer.handle(taskWith(), never);
  await settled();
  await clock.advance(1_000);
  expect(await settlement).toMatchObject({
    kind: "retry",
    failure: { class: "TimeoutError", kind: "retryable" },
  });
  expect(await context.telemetry.scrape()).toMatch(/^khala_board_timeouts_total\{agent="reviewer"\} 1/m);
});

test("work that ignores its signal does not hold its place for ever", async () => {
  const slots = openSlots(1);
  const { consumer, clock, context } = await executor(
    { timeout: 1_000, run: () => new Promise(() => undefined) },
    { slots, graceMs: 500 },
  );
  const settlement = consumer.handle(taskWith(), never);
  await settled();
  expect([slots.free, consumer.running()]).toEqual([0, 1]);
  await clock.advance(1_500);
  expect(await settlement).toMatchObject({ kind: "retry", failure: { class: "TimeoutError" } });
  expect([slots.free, consumer.running()]).toEqual([1, 0]);
  expect(await context.telemetry.scrape()).toMatch(/^khala_board_abandoned_total\{agent="reviewer"\} 1/m);
});

test("agents share the places of the process, and the higher priority goes first", async () => {
  const order: string[] = [];
  const ends: (() => void)[] = [];
  const { open } = await executor({}, { slots: openSlots(1) });
  const consumerOf = (name: string, priority: number) =>
    open.consumer(
      agent(name, {
        consumes: "Draft",
        priority,
        run: () =>
          new Promise<undefined>((resolve) => {
            order.push(name);
            ends.push(() => resolve(undefined));
          }),
      }),
    );
  const [low, high] = [consumerOf("low", 0), consumerOf("high", 1)];
  const all = [low, low, high].map((consumer) => consumer.handle(taskWith({ agent: consumer.agent }), never));
  for (let turn = 0; turn < 3; turn++) {
    await settled();
    expect(order).toHaveLength(turn + 1);
    ends[turn]?.();
  }
  await Promise.all(all);
  expect(order).toEqual(["low", "high", "low"]);
});

test("starts stay within the rate, and who waits for it holds no place", async () => {
  const slots = openSlots(1);
  const starts: number[] = [];
  const run = async () => {
    starts.push(clock.now() - begin);
  };
  const { consumer, clock } = await executor({ rate: { limit: 2, per: 1_000 }, run }, { slots });
  const begin = clock.now();
  const all = Array.from({ length: 5 }, () => consumer.handle(taskWith(), never));
  await settled();
  expect([starts, slots.free]).toEqual([[0, 0], 1]);
  await clock.advance(2_000);
  await Promise.all(all);
  expect(starts).toEqual([0, 0, 1_000, 1_000, 2_000]);
});

test("the gate waits while the rate is used up", async () => {
  const { consumer, clock } = await executor({ rate: { limit: 1, per: 1_000 }, run: async () => undefined });
  await consumer.gate(never);
  await consumer.handle(taskWith(), never);
  let through = false;
  const gate = consumer.gate(never).then(() => {
    through = true;
  });
  await clock.advance(999);
  expect(through).toBe(false);
  await clock.advance(1);
  await gate;
});

test("an agent that keeps failing is stopped by its breaker, which lets one task try", async () => {
  let healthy = false;
  let runs = 0;
  const { consumer, clock } = await executor(
    {
      run: async () => {
        runs++;
        if (!healthy) throw new Error("down");
      },
    },
    { breaker: { failures: 2, base: 1_000, cap: 1_000 } },
  );
  await consumer.handle(taskWith(), never);
  await consumer.handle(taskWith(), never);
  expect([consumer.state(), runs]).toEqual(["open", 2]);
  let through = false;
  const gate = consumer.gate(never).then(() => {
    through = true;
  });
  const held = [consumer.handle(taskWith(), never), consumer.handle(taskWith(), never)];
  await settled();
  expect([through, runs]).toEqual([false, 2]);
  healthy = true;
  await clock.advance(1_000);
  await gate;
  expect(await Promise.all(held)).toMatchObject([{ kind: "done" }, { kind: "done" }]);
  expect([consumer.state(), runs]).toEqual(["closed", 4]);
});

test("rate limits never open the breaker", async () => {
  const { consumer } = await executor(failing(new RateLimitedError("x", 5)), { breaker: { failures: 1 } });
  for (let time = 0; time < 5; time++) await consumer.handle(taskWith(), never);
  expect(consumer.state()).toBe("closed");
});

test("a task that is taken away while it waits does not start, and nothing is left behind", async () => {
  const slots = openSlots(1);
  const release = await slots.take(0, never);
  const { consumer } = await executor({ run: async () => expect.unreachable() }, { slots });
  const stop = new AbortController();
  const settlement = consumer.handle(taskWith(), stop.signal);
  stop.abort();
  expect(await settlement).toMatchObject({ kind: "retry", delayMs: 0, failure: { class: "NotStarted" } });
  release?.();
  expect([slots.free, slots.waiting]).toEqual([1, 0]);
});

test("a task that is taken away while it runs says nothing about the agent", async () => {
  const { consumer } = await executor(
    {
      run: (_, signal) =>
        new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    },
    { breaker: { failures: 1 } },
  );
  const stop = new AbortController();
  const settlement = consumer.handle(taskWith(), stop.signal);
  await settled();
  stop.abort();
  await settlement;
  expect(consumer.state()).toBe("closed");
});

test("work that is done elsewhere takes no place and keeps its own time", async () => {
  const slots = openSlots(1);
  const release = await slots.take(0, never);
  const end = Promise.withResolvers<{ type: string; payload: number }>();
  const { consumer, clock } = await executor({ timeout: 1_000 }, { slots, remote: () => end.promise });
  const settlement = consumer.handle(taskWith(), never);
  await settled();
  await clock.advance(60_000);
  end.resolve({ type: "Review", payload: 1 });
  expect(await settlement).toMatchObject({ kind: "done", outputs: [{ type: "Review" }] });
  release?.();
});

test("an agent without run, and without work elsewhere, says so", async () => {
  const { consumer } = await executor({});
  expect(await consumer.handle(taskWith(), never)).toMatchObject({
    kind: "dead",
    failure: { kind: "fatal" },
  });
});

test("handling never rejects, whatever an agent returns or throws, and gives every place back", async () => {
  const value = fc.anything({ withNullPrototype: true, withBigInt: true, withDate: true });
  await fc.assert(
    fc.asyncProperty(value, fc.boolean(), async (result, throws) => {
      const slots = openSlots(1);
      const run = async () => {
        if (throws) throw result;
        return result;
      };
      const { consumer } = await executor({ run: run as never }, { slots });
      const { kind } = await consumer.handle(taskWith(), never);
      expect(["done", "retry", "dead"]).toContain(kind);
      expect(slots.free).toBe(1);
    }),
    { numRuns: 50 },
  );
});
