import { DRAFT, failing, never, taskWith, testExecutor } from "@khala/test-support/kit/executor";
import { expect, test } from "vitest";
import { z } from "zod";
import type { AgentTask } from "../model/agent.ts";
import { agent } from "../model/define_agent.ts";
import { FatalError, RateLimitedError, RetryableError } from "../model/errors.ts";
import type { Task } from "../model/task.ts";
import type { MadeArtifact } from "../publish/drafts.ts";

test("calls run with the task, and publishes what it returns in the agent's name", async () => {
  let given: AgentTask | undefined;
  const { consumer } = await testExecutor({
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
    idempotencyKey: `${DRAFT.id}:reviewer@org-1`,
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
  const { consumer } = await testExecutor({ run: (async () => output) as never });
  expect(await consumer.handle(taskWith(), never)).toMatchObject({ kind: "done", outputs: [] });
});

test("a second run publishes the same ids, a replay and another agent do not", async () => {
  const run = async () => [
    { type: "Review", payload: 1 },
    { type: "Review", payload: 2 },
  ];
  const { consumer, open } = await testExecutor({ run });
  const other = open(agent("other", { consumes: "Draft", run }));
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

test("without a correlation, outputs get the first artifact's id as theirs", async () => {
  const { consumer } = await testExecutor({ run: async () => ({ type: "Review", payload: 1 }) });
  const { correlation_id: _, ...alone } = DRAFT;
  const settlement = await consumer.handle(taskWith({ artifacts: [alone] }), never);
  expect(settlement).toMatchObject({ outputs: [{ correlation_id: DRAFT.id }] });
});

test("changes that run makes to its artifacts do not reach the retry", async () => {
  const task = taskWith();
  const { consumer } = await testExecutor({
    run: ({ artifact }) => {
      (artifact.payload as { words: number }).words = 0;
      throw new Error("later");
    },
  });
  await consumer.handle(task, never);
  expect(task.artifacts[0].payload).toEqual({ words: 3 });
});

test("a chain that is too long becomes a dead letter, unless it publishes nothing", async () => {
  const deep = { ...DRAFT, depth: 32 };
  const { consumer } = await testExecutor({ run: async () => ({ type: "Draft", payload: 1 }) });
  expect(await consumer.handle(taskWith({ artifacts: [DRAFT, deep] }), never)).toMatchObject({
    kind: "dead",
    failure: {
      class: "ChainTooLongError",
      kind: "fatal",
      message: expect.stringContaining("KHALA_BOARD_DEPTH"),
    },
  });
  const { consumer: sink } = await testExecutor({ run: async () => undefined });
  expect(await sink.handle(taskWith({ artifacts: [deep] }), never)).toMatchObject({ kind: "done" });
});

test("an invalid output makes a dead letter that names it", async () => {
  const schemas = { Review: z.object({ ok: z.boolean() }) };
  const outputs = [
    { type: "Review", payload: { ok: true } },
    { type: "Review", payload: { ok: "yes" } },
  ];
  const { consumer } = await testExecutor({ run: async () => outputs }, { schemas });
  const settlement = await consumer.handle(taskWith(), never);
  expect(settlement).toMatchObject({ kind: "dead", failure: { class: "InvalidOutputError", kind: "fatal" } });
  expect(settlement).toHaveProperty(
    "failure.message",
    expect.stringContaining(
      'Agent "reviewer" returned an output that cannot be published: outputs[1].payload.ok',
    ),
  );
  const { consumer: chatty } = await testExecutor({ run: (async () => "done") as never });
  expect(await chatty.handle(taskWith(), never)).toHaveProperty(
    "failure.message",
    expect.stringContaining("a string"),
  );
});

test("stores scheduled outputs before the task is done, and does not publish them now", async () => {
  const kept: MadeArtifact[] = [];
  const run = async () => [
    { type: "Review", payload: 1 },
    { type: "Reminder", payload: 2, not_before: "2026-01-02T00:00:00Z" },
  ];
  const { consumer } = await testExecutor({ run }, { later: async (outputs) => void kept.push(...outputs) });
  expect(await consumer.handle(taskWith(), never)).toMatchObject({
    kind: "done",
    outputs: [{ type: "Review" }],
  });
  expect(kept).toMatchObject([{ artifact: { type: "Reminder" }, notBefore: Date.UTC(2026, 0, 2) }]);
  const broken = await testExecutor({ run }, { later: () => Promise.reject(new Error("no database")) });
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
])("retries after %s", async (_, error, name) => {
  const { consumer } = await testExecutor(failing(error));
  const settlement = await consumer.handle(taskWith(), never);
  expect(settlement).toMatchObject({
    kind: "retry",
    failure: { class: name, message: "x", kind: "retryable" },
  });
});

test("makes a dead letter at once of a FatalError", async () => {
  const { consumer } = await testExecutor(failing(new FatalError("bad input")));
  const settlement = await consumer.handle(taskWith(), never);
  expect(settlement).toMatchObject({
    kind: "dead",
    failure: { class: "FatalError", message: "bad input", kind: "fatal" },
  });
});

test("a rate limit has its own delay", async () => {
  const { consumer } = await testExecutor(failing(new RateLimitedError("slow down", 7_000)));
  const settlement = await consumer.handle(taskWith(), never);
  expect(settlement).toMatchObject({ kind: "retry", delayMs: 7_000, failure: { kind: "rate_limited" } });
});

test.each([
  [Number.NaN, 0],
  [-5, 0],
  [Number.POSITIVE_INFINITY, 86_400_000],
])("a rate limit of %s ms waits %i", async (ms, delayMs) => {
  const { consumer } = await testExecutor(failing(new RateLimitedError("slow down", ms)));
  expect(await consumer.handle(taskWith(), never)).toMatchObject({ kind: "retry", delayMs });
});

test("classify decides about other errors, and is not called for those with a class of their own", async () => {
  const classify = (error: unknown) =>
    error instanceof RangeError ? "fatal" : error instanceof TypeError ? { rateLimitedMs: 50 } : "retryable";
  const outcome = async (error: unknown, rule: unknown = classify) => {
    const { consumer } = await testExecutor({
      ...failing(error),
      retry: { classify: rule as typeof classify },
    });
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
  const { consumer } = await testExecutor(
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

test("makes a dead letter after the last attempt, whatever the error", async () => {
  for (const error of [new Error("x"), new RateLimitedError("x", 5)]) {
    const { consumer } = await testExecutor({ ...failing(error), retry: { attempts: 3 } });
    expect(await consumer.handle(taskWith({ attempt: 2 }), never)).toMatchObject({ kind: "retry" });
    expect(await consumer.handle(taskWith({ attempt: 3 }), never)).toMatchObject({ kind: "dead" });
  }
});

test("makes a dead letter of a task whose processes died each time", async () => {
  let ran = false;
  const run = async () => {
    ran = true;
  };
  const { consumer } = await testExecutor({ run, retry: { attempts: 3 } });
  expect(await consumer.handle(taskWith({ attempt: 4 }), never)).toMatchObject({
    kind: "dead",
    failure: { class: "WorkerLost", kind: "fatal", message: expect.stringContaining("3 times") },
  });
  expect(ran).toBe(false);
});
