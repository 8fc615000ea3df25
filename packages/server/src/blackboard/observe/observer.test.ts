import { testContext } from "@khala/test-support/kit/context";
import { noRemoteWork } from "@khala/test-support/kit/executor";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { SpanStatusCode } from "@opentelemetry/api";
import { InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace";
import { expect, test } from "vitest";
import { openTelemetry } from "../../kit/telemetry.ts";
import type { RecordPosition } from "../board_options.ts";
import type { Artifact } from "../model/artifact.ts";
import { agent } from "../model/define_agent.ts";
import type { Task } from "../model/task.ts";
import { makeArtifacts } from "../publish/drafts.ts";
import { createRouter } from "../publish/matching.ts";
import { openAgentConsumer } from "../work/execution.ts";
import { openSlots } from "../work/slots.ts";
import { boardMetrics } from "./metrics.ts";
import { boardObserver } from "./observer.ts";
import { boardSpans } from "./spans.ts";

const never = new AbortController().signal;
const POSITION: RecordPosition = {
  topic: "flock.tasks.reviewer",
  partition: 3,
  offset: "1042",
  transactionId: "flock-orch-1",
};
const AUTHOR = { org: "org-1", producedBy: "user:u-1", depth: 0, correlationId: "c-1" };

async function opened(run: () => Promise<{ type: string; payload: number }>) {
  const clock = new ManualClock();
  const exporter = new InMemorySpanExporter();
  const telemetry = await openTelemetry({ spanProcessor: new SimpleSpanProcessor({ exporter }) });
  const context = { ...(await testContext({ clock })), telemetry };
  const metrics = boardMetrics(telemetry, ["reviewer"], ["Draft"]);
  const spans = boardSpans(context, {
    system: "kafka",
    artifacts: "flock.artifacts",
    tasks: (name) => `flock.tasks.${name}`,
  });
  const reviewer = agent("reviewer", { consumes: "Draft", run });
  const shared = {
    slots: openSlots(1),
    metrics,
    spans,
    schemas: {},
    maxDepth: 32,
    known: async () => [],
  };
  return {
    clock,
    exporter,
    telemetry,
    spans,
    route: createRouter([reviewer], context),
    consumer: openAgentConsumer(context, shared, reviewer, noRemoteWork),
    observer: boardObserver(metrics, spans),
    /** A board's handling of a draft, in memory. */
    async publish(parent?: string): Promise<Artifact> {
      const made = await spans.publish(
        { org: AUTHOR.org, trace: parent },
        async (trace) => {
          const author = trace ? { ...AUTHOR, trace } : AUTHOR;
          return makeArtifacts([{ type: "Draft", payload: 1 }], author, {
            schemas: {},
            clock,
            newId: context.newId,
          });
        },
        (all) => all.map(({ artifact }) => artifact),
      );
      return made[0]!.artifact;
    },
  };
}

test("one trace spans publish, route, process, settle and the outputs", async () => {
  const board = await opened(async () => ({ type: "Review", payload: 1 }));
  const artifact = await board.publish();
  const { tasks } = board.route(artifact);
  await board.clock.advance(20);
  board.observer.routed(artifact, tasks, { ...POSITION, topic: "flock.artifacts", offset: "7" });
  const settlement = await board.consumer.handle(tasks[0]!, never);
  await board.clock.advance(5);
  board.observer.settled(tasks[0]!, settlement, POSITION);

  const spans = board.exporter.getFinishedSpans();
  expect(spans.map(({ name }) => name)).toEqual([
    "publish flock.artifacts",
    "route flock.artifacts",
    "process flock.tasks.reviewer",
    "settle flock.tasks.reviewer",
  ]);
  const [publish, route, process, settle] = spans;
  expect(new Set(spans.map((span) => span.spanContext().traceId)).size).toBe(1);
  expect(route?.parentSpanContext?.spanId).toBe(publish?.spanContext().spanId);
  expect(process?.parentSpanContext?.spanId).toBe(publish?.spanContext().spanId);
  expect(settle?.parentSpanContext?.spanId).toBe(process?.spanContext().spanId);
  const output = settlement.kind === "done" ? settlement.outputs[0] : undefined;
  expect(output?.traceparent).toContain(process?.spanContext().spanId);

  const named = {
    "artifact.id": artifact.id,
    "artifact.type": "Draft",
    correlation_id: "c-1",
    "khala.org_id": "org-1",
  };
  for (const span of spans) expect(span.attributes).toMatchObject({ ...named, "messaging.system": "kafka" });
  expect(publish?.attributes).toMatchObject({
    "kafka.topic": "flock.artifacts",
    "messaging.destination.name": "flock.artifacts",
    "messaging.operation.type": "send",
    "messaging.message.conversation_id": "c-1",
  });
  expect(route?.attributes).toMatchObject({
    "kafka.topic": "flock.artifacts",
    partition: 3,
    offset: "7",
    transaction_id: "flock-orch-1",
    "messaging.kafka.offset": 7,
    "khala.tasks": 1,
  });
  expect(process?.attributes).toMatchObject({
    "messaging.operation.type": "process",
    "khala.agent": "reviewer",
    "khala.attempt": 1,
  });
  expect(settle?.attributes).toMatchObject({
    "kafka.topic": "flock.tasks.reviewer",
    partition: 3,
    offset: "1042",
    transaction_id: "flock-orch-1",
    "messaging.destination.partition.id": "3",
    "messaging.kafka.offset": 1042,
    "messaging.operation.type": "settle",
    "khala.outcome": "done",
  });
});

test("a publication continues the trace of its request, and its span shows a failure", async () => {
  const board = await opened(async () => ({ type: "Review", payload: 1 }));
  const parent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
  await board.publish(parent);
  const refused = board.spans.publish(
    { org: AUTHOR.org, trace: parent },
    () => Promise.reject(new RangeError("no")),
    () => [],
  );
  await expect(refused).rejects.toThrow("no");
  const [good, bad] = board.exporter.getFinishedSpans();
  expect([good, bad].map((span) => span?.spanContext().traceId)).toEqual(["a".repeat(32), "a".repeat(32)]);
  expect(bad?.status.code).toBe(SpanStatusCode.ERROR);
  expect(bad?.attributes["error.type"]).toBe("RangeError");
});

test("counts and times attempts by agent, outcome and partition", async () => {
  const board = await opened(async () => {
    await board.clock.advance(70);
    throw new Error("down");
  });
  const { tasks } = board.route(await board.publish());
  const task: Task = tasks[0]!;
  for (const attempt of [1, 5]) {
    const claimed = { ...task, attempt };
    const settlement = await board.consumer.handle(claimed, never);
    board.observer.settled(claimed, settlement, POSITION);
  }
  board.observer.repeated(task);
  board.observer.published([task.artifacts[0]]);
  const text = await board.telemetry.scrape();
  expect(text).toMatch(/^khala_board_tasks_total\{agent="reviewer",outcome="retry",partition="3"\} 1/m);
  expect(text).toMatch(/^khala_board_tasks_total\{agent="reviewer",outcome="dead",partition="3"\} 1/m);
  expect(text).toMatch(
    /^khala_board_task_seconds_bucket\{agent="reviewer",outcome="retry",partition="3",le="0.05"\} 0/m,
  );
  expect(text).toMatch(
    /^khala_board_task_seconds_bucket\{agent="reviewer",outcome="retry",partition="3",le="0.1"\} 1/m,
  );
  expect(text).toMatch(/^khala_board_retries_total\{agent="reviewer",kind="retryable"\} 1/m);
  expect(text).toMatch(/^khala_board_dead_letters_total\{agent="reviewer"\} 1/m);
  expect(text).toMatch(/^khala_board_dedup_hits_total\{agent="reviewer"\} 1/m);
  expect(text).toMatch(/^khala_board_artifacts_total\{type="Draft"\} 1/m);
  const failed = board.exporter.getFinishedSpans().find(({ name }) => name.startsWith("process"));
  expect(failed?.status).toEqual({ code: SpanStatusCode.ERROR, message: "down" });
});

test("does not count a task that was set aside until it returns and is done", async () => {
  const board = await opened(async () => ({ type: "Review", payload: 1 }));
  const { tasks } = board.route(await board.publish());
  board.observer.settled(tasks[0]!, { kind: "done", outputs: [], aside: true }, POSITION);
  expect(await board.telemetry.scrape()).not.toMatch(/^khala_board_tasks_total\{/m);
  const settlement = await board.consumer.handle(tasks[0]!, never);
  board.observer.settled(tasks[0]!, settlement, POSITION);
  const text = await board.telemetry.scrape();
  expect(text).toMatch(/^khala_board_tasks_total\{agent="reviewer",outcome="done",partition="3"\} 1/m);
});
