import { type Attributes, type HrTime, SpanStatusCode } from "@opentelemetry/api";
import type { ReadableSpan, SpanProcessor } from "@opentelemetry/sdk-trace";
import { ORG } from "./telemetry.ts";

/** A span that is over. Times are milliseconds. */
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

/** The attribute that says what belongs together across traces. */
const CORRELATION = "correlation_id";

/** The last spans of this process, in memory: for developers, who have no collector. */
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
    // The trace that moved last comes last, so that the oldest one goes first.
    this.#traces.delete(traceId);
    this.#traces.set(traceId, trace);
    trace.push(ended);
    this.#spans++;
    while (this.#spans > this.#size) this.#forgetOldest();
  }

  /** The newest traces of an org first, of one correlation if it is asked for, each with its spans as they ended. */
  newest(org: string, limit: number, correlationId?: string): (readonly EndedSpan[])[] {
    const found: EndedSpan[][] = [];
    for (const trace of [...this.#traces.values()].reverse()) {
      if (found.length >= limit) break;
      const own = ownOf(trace, org);
      const wanted =
        correlationId === undefined ||
        own.some(({ attributes }) => attributes[CORRELATION] === correlationId);
      if (own.length > 0 && wanted) found.push(own);
    }
    return found;
  }

  /** The spans of a trace that are an org's, by their start; undefined when none is remembered. */
  trace(org: string, traceId: string): EndedSpan[] | undefined {
    const own = ownOf(this.#traces.get(traceId) ?? [], org);
    return own.length > 0 ? own.sort((a, b) => a.startedAt - b.startedAt) : undefined;
  }

  async forceFlush(): Promise<void> {}

  async shutdown(): Promise<void> {
    this.#traces.clear();
    this.#spans = 0;
  }

  /** One trace may be all that there is: then its own oldest spans go. */
  #forgetOldest(): void {
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

/** Whoever knows the id of a trace can continue it: each org sees its own part. */
function ownOf(trace: readonly EndedSpan[], org: string): EndedSpan[] {
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
