import { type Attributes, type HrTime, SpanStatusCode } from "@opentelemetry/api";
import type { ReadableSpan, SpanProcessor } from "@opentelemetry/sdk-trace";
import { ORG } from "./telemetry.ts";

/** A span that has ended. Times are in milliseconds. */
export interface EndedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId: string | undefined;
  readonly name: string;
  readonly startedAt: number;
  readonly durationMs: number;
  readonly attributes: Attributes;
  readonly failed: boolean;
  /** Why it failed. */
  readonly message: string | undefined;
}

/** The attribute that groups spans of several traces. */
const CORRELATION = "correlation_id";

/** A ring buffer of this process's last spans, for development without a collector. */
export class SpanRing implements SpanProcessor {
  readonly #size: number;
  readonly #traces = new Map<string, EndedSpan[]>();
  #spans = 0;

  constructor(size = 10_000) {
    this.#size = size;
  }

  onStart(): void {}

  onEnd(span: ReadableSpan): void {
    const ended = endedSpan(span);
    const { traceId } = ended;
    const trace = this.#traces.get(traceId) ?? [];
    // Insertion order is recency order, so that eviction starts with the oldest trace.
    this.#traces.delete(traceId);
    this.#traces.set(traceId, trace);
    trace.push(ended);
    this.#spans++;
    while (this.#spans > this.#size) this.#evictOldest();
  }

  /** An org's traces, newest first, optionally of one correlation. Spans are in the order in which they ended. */
  newest(org: string, limit: number, correlationId?: string): (readonly EndedSpan[])[] {
    const found: EndedSpan[][] = [];
    for (const trace of [...this.#traces.values()].reverse()) {
      if (found.length >= limit) break;
      const own = spansOfOrg(trace, org);
      const wanted =
        correlationId === undefined ||
        own.some(({ attributes }) => attributes[CORRELATION] === correlationId);
      if (own.length > 0 && wanted) found.push(own);
    }
    return found;
  }

  /** An org's spans of a trace, by start time; undefined when the buffer has none. */
  trace(org: string, traceId: string): EndedSpan[] | undefined {
    const own = spansOfOrg(this.#traces.get(traceId) ?? [], org);
    return own.length > 0 ? own.sort((a, b) => a.startedAt - b.startedAt) : undefined;
  }

  async forceFlush(): Promise<void> {}

  async shutdown(): Promise<void> {
    this.#traces.clear();
    this.#spans = 0;
  }

  /** Evicts the oldest trace, or the oldest span when there is only one trace. */
  #evictOldest(): void {
    const [traceId, trace] = this.#traces.entries().next().value!;
    if (this.#traces.size > 1) {
      this.#traces.delete(traceId);
      this.#spans -= trace.length;
    } else {
      trace.shift();
      this.#spans--;
    }
  }
}

/** Anyone who knows a trace id can continue the trace, so each org sees its own spans only. */
function spansOfOrg(trace: readonly EndedSpan[], org: string): EndedSpan[] {
  return trace.filter(({ attributes }) => attributes[ORG] === org);
}

function endedSpan(span: ReadableSpan): EndedSpan {
  const { traceId, spanId } = span.spanContext();
  const failed = span.status.code === SpanStatusCode.ERROR;
  return {
    traceId,
    spanId,
    parentId: span.parentSpanContext?.spanId,
    name: span.name,
    startedAt: milliseconds(span.startTime),
    durationMs: milliseconds(span.duration),
    attributes: span.attributes,
    failed,
    message: failed ? (span.status.message ?? String(span.attributes["error.type"] ?? "")) : undefined,
  };
}

function milliseconds([seconds, nanoseconds]: HrTime): number {
  return seconds * 1_000 + nanoseconds / 1e6;
}
