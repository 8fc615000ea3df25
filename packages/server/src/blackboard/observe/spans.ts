import { type Attributes, isSpanContextValid, SpanKind, SpanStatusCode } from "@opentelemetry/api";
import type { Context } from "../../kit/context.ts";
import { orgAttributes, recordSpan, traceContext, traceparent } from "../../kit/telemetry.ts";
import type { RecordPosition } from "../board_options.ts";
import type { Artifact } from "../model/artifact.ts";
import type { Failure, Settlement, Task } from "../model/task.ts";

/** The backend, in the terms of OpenTelemetry's messaging conventions. */
export interface Carrier {
  readonly system: "kafka" | "postgresql";
  /** The destination of artifacts. */
  readonly artifacts: string;
  /** The destination of an agent's tasks. */
  tasks(agent: string): string;
  /** The consumer group; default: the agent's name. */
  group?(agent: string): string;
}

/** The spans of one trace: publish, route, process, settle. */
export interface BoardSpans {
  /** Runs a publication; `trace` is stored in its artifacts, so that their tasks continue the trace. */
  publish<T>(
    from: { readonly org: string; readonly trace?: string | undefined },
    run: (trace: string | undefined) => Promise<T>,
    describe: (result: T) => readonly Artifact[],
  ): Promise<T>;
  /** From the publication to the tasks; `position` is the artifact's position, if it is known. */
  routed(artifact: Artifact, tasks: readonly Task[], position?: RecordPosition): void;
  /** The execution of a task. Its outputs continue its `trace`. */
  process(task: Task): ProcessSpan;
  /** From the end of the execution to its durable settlement. */
  settled(
    task: Task,
    settlement: Settlement,
    position: RecordPosition,
    from: number,
    parent: string | undefined,
  ): void;
}

/** A running task. */
export interface ProcessSpan {
  readonly trace: string | undefined;
  end(failure?: Failure): void;
}

/** How long the result "spans are not recorded" is cached: a tracer may be registered at any time. */
const SILENT_MS = 1_000;

/** Opens the spans of a board. */
export function boardSpans(
  { clock, telemetry }: Pick<Context, "clock" | "telemetry">,
  carrier: Carrier,
): BoardSpans {
  const { tracer } = telemetry;
  let silentUntil = Number.NEGATIVE_INFINITY;
  const positionAttributes = ({ partition, offset, transactionId }: RecordPosition): Attributes => ({
    "messaging.destination.partition.id": String(partition),
    ...(carrier.system === "kafka" && { "messaging.kafka.offset": Number(offset) }),
    partition,
    offset,
    ...(transactionId && { transaction_id: transactionId }),
  });
  const operation = (name: string, type: string, destination: string): Attributes => ({
    "messaging.system": carrier.system,
    "messaging.destination.name": destination,
    "messaging.operation.name": name,
    "messaging.operation.type": type,
    ...(carrier.system === "kafka" && { "kafka.topic": destination }),
  });

  return {
    async publish({ org, trace: parent }, run, describe) {
      const { artifacts } = carrier;
      const attributes = { ...operation("publish", "send", artifacts), ...orgAttributes(org) };
      const options = { kind: SpanKind.PRODUCER, startTime: clock.now(), attributes };
      const span = tracer.startSpan(`publish ${artifacts}`, options, traceContext(parent));
      try {
        const result = await run(traceparent(span) ?? parent);
        if (span.isRecording()) span.setAttributes(attributesOf(describe(result)));
        return result;
      } catch (error) {
        span.setAttribute("error.type", error instanceof Error ? error.name : typeof error);
        span.setStatus({ code: SpanStatusCode.ERROR });
        throw error;
      } finally {
        span.end(clock.now());
      }
    },

    routed(artifact, tasks, position) {
      if (!artifact.traceparent) return;
      const now = clock.now();
      recordSpan(telemetry, artifact.traceparent, {
        name: `route ${carrier.artifacts}`,
        // Clocks of two servers differ, but a span must not end before it starts.
        from: Math.min(Date.parse(artifact.created_at), now),
        to: now,
        org: artifact.org_id,
        attributes: {
          ...operation("route", "receive", carrier.artifacts),
          ...attributesOf([artifact]),
          ...(position && positionAttributes(position)),
          "khala.tasks": tasks.length,
        },
      });
    },

    process(task) {
      const { agent, artifacts, attempt, id } = task;
      const [first] = artifacts;
      const now = clock.now();
      if (!first.traceparent && now < silentUntil) return UNRECORDED;
      const topic = carrier.tasks(agent);
      const options = { kind: SpanKind.CONSUMER, startTime: now };
      const span = tracer.startSpan(`process ${topic}`, options, traceContext(first.traceparent));
      if (!span.isRecording()) {
        // No parent and no id: spans are not recorded.
        if (!isSpanContextValid(span.spanContext())) silentUntil = now + SILENT_MS;
        return unrecorded(first.traceparent);
      }
      span.setAttributes({
        ...operation("process", "process", topic),
        ...attributesOf(artifacts),
        ...orgAttributes(first.org_id),
        "messaging.message.id": id,
        "messaging.consumer.group.name": carrier.group?.(agent) ?? agent,
        "khala.agent": agent,
        "khala.attempt": attempt,
      });
      return {
        trace: traceparent(span) ?? first.traceparent,
        end(failure) {
          if (failure) {
            span.setAttribute("error.type", failure.class);
            span.setStatus({ code: SpanStatusCode.ERROR, message: failure.message });
          }
          span.end(clock.now());
        },
      };
    },

    settled(task, settlement, position, from, parent) {
      if (!parent) return;
      const to = clock.now();
      recordSpan(telemetry, parent, {
        name: `settle ${position.topic}`,
        from: Math.min(from, to),
        to,
        org: task.artifacts[0].org_id,
        attributes: {
          ...operation("settle", "settle", position.topic),
          ...attributesOf(task.artifacts),
          "messaging.message.id": task.id,
          ...positionAttributes(position),
          "khala.agent": task.agent,
          "khala.outcome": settlement.kind,
        },
      });
    },
  };
}

const UNRECORDED: ProcessSpan = { trace: undefined, end() {} };

/** A span that is not recorded. */
function unrecorded(trace: string | undefined): ProcessSpan {
  return trace ? { ...UNRECORDED, trace } : UNRECORDED;
}

/** The id of an artifact, and the number of artifacts if there are several. */
function attributesOf(artifacts: readonly Artifact[]): Attributes {
  const [first] = artifacts;
  if (!first) return { "messaging.batch.message_count": 0 };
  const { id, type, correlation_id } = first;
  return {
    "artifact.id": id,
    "artifact.type": type,
    "messaging.message.id": id,
    ...(correlation_id && { correlation_id, "messaging.message.conversation_id": correlation_id }),
    ...(artifacts.length > 1 && { "messaging.batch.message_count": artifacts.length }),
  };
}
