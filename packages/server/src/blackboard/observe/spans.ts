import { type Attributes, isSpanContextValid, SpanKind, SpanStatusCode } from "@opentelemetry/api";
import type { Context } from "../../kit/context.ts";
import { orgAttributes, recordSpan, traceContext, traceparent } from "../../kit/telemetry.ts";
import type { Place } from "../board.ts";
import type { Artifact } from "../model/artifact.ts";
import type { Failure, Settlement, Task } from "../model/task.ts";

/** What carries the board, in the words of OpenTelemetry's messaging conventions. */
export interface Carrier {
  readonly system: "kafka" | "postgresql";
  /** Where artifacts are published. */
  readonly artifacts: string;
  /** Where the tasks of an agent are. */
  tasks(agent: string): string;
  /** Who reads them together; the agent's name unless it is said. */
  group?(agent: string): string;
}

/** The steps of work as spans of one trace: publish, route, process, settle. */
export interface BoardSpans {
  /** Runs a publication; `trace` goes into the artifacts, so that whatever comes of them is in the same trace. */
  publish<T>(
    from: { readonly org: string; readonly trace?: string | undefined },
    run: (trace: string | undefined) => Promise<T>,
    describe: (result: T) => readonly Artifact[],
  ): Promise<T>;
  /** From the publication to the tasks; `place` is where the artifact is, if that is known. */
  routed(artifact: Artifact, tasks: readonly Task[], place?: Place): void;
  /** The work on a task. What it publishes continues its `trace`. */
  process(task: Task): ProcessSpan;
  /** From the end of the work to its durable settlement. */
  settled(task: Task, settlement: Settlement, place: Place, from: number, parent: string | undefined): void;
}

/** A task under way. */
export interface ProcessSpan {
  readonly trace: string | undefined;
  end(failure?: Failure): void;
}

/** How long it is believed that nobody makes spans of what begins a trace: a library may be told to at any time. */
const SILENT_MS = 1_000;

/** Makes the spans of a board. */
export function boardSpans(
  { clock, telemetry }: Pick<Context, "clock" | "telemetry">,
  carrier: Carrier,
): BoardSpans {
  const { tracer } = telemetry;
  let silentUntil = Number.NEGATIVE_INFINITY;
  const placeAttributes = ({ partition, offset, transactionId }: Place): Attributes => ({
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

    routed(artifact, tasks, place) {
      if (!artifact.traceparent) return;
      const now = clock.now();
      recordSpan(telemetry, artifact.traceparent, {
        name: `route ${carrier.artifacts}`,
        // Clocks of two servers differ: a span does not end before it starts.
        from: Math.min(Date.parse(artifact.created_at), now),
        to: now,
        org: artifact.org_id,
        attributes: {
          ...operation("route", "receive", carrier.artifacts),
          ...attributesOf([artifact]),
          ...(place && placeAttributes(place)),
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
        // Without a parent and without an id: nobody has decided that, nobody is there.
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

    settled(task, settlement, place, from, parent) {
      if (!parent) return;
      const to = clock.now();
      recordSpan(telemetry, parent, {
        name: `settle ${place.topic}`,
        from: Math.min(from, to),
        to,
        org: task.artifacts[0].org_id,
        attributes: {
          ...operation("settle", "settle", place.topic),
          ...attributesOf(task.artifacts),
          "messaging.message.id": task.id,
          ...placeAttributes(place),
          "khala.agent": task.agent,
          "khala.outcome": settlement.kind,
        },
      });
    },
  };
}

const UNRECORDED: ProcessSpan = { trace: undefined, end() {} };

/** A span that nobody will see: it costs nothing. */
function unrecorded(trace: string | undefined): ProcessSpan {
  return trace ? { ...UNRECORDED, trace } : UNRECORDED;
}

/** What names an artifact, and how many there are if it is not alone. */
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
