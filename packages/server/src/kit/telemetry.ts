import {
  type Attributes,
  context,
  type Meter,
  ROOT_CONTEXT,
  type Span,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { PrometheusExporter, PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import { AggregationType, MeterProvider } from "@opentelemetry/sdk-metrics";
import { BatchSpanProcessor, type SpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import { type Figures, figuresOf } from "./figures.ts";

/** Histogram buckets in milliseconds, from "in memory" to "something is wrong". */
const BUCKETS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];

/** Where rooms report: metrics that are scraped, spans that are exported. */
export interface Telemetry {
  readonly meter: Meter;
  readonly tracer: Tracer;
  /** The Prometheus text of all metrics now. */
  scrape(): Promise<string>;
  /** Counters and gauges now, to be reckoned with. */
  figures(): Promise<Figures>;
  /** Flushes what is waiting. */
  shutdown(): Promise<void>;
}

export interface TelemetryOptions {
  /** OTLP over HTTP, such as `http://127.0.0.1:4318`; spans are dropped without it. */
  readonly otlpEndpoint?: string;
  /** Sees every span besides. */
  readonly spanProcessor?: SpanProcessor;
}

/** Opens telemetry for one server. Nothing is global: two servers in one process do not mix. */
export async function openTelemetry(options: TelemetryOptions = {}): Promise<Telemetry> {
  const exporter = new PrometheusExporter({ preventServerStart: true });
  const serializer = new PrometheusSerializer(undefined, false, undefined, true, true);
  const metrics = new MeterProvider({
    readers: [exporter],
    views: [
      {
        instrumentUnit: "ms",
        aggregation: { type: AggregationType.EXPLICIT_BUCKET_HISTOGRAM, options: { boundaries: BUCKETS } },
      },
    ],
  });
  const processors: SpanProcessor[] = [];
  if (options.spanProcessor) processors.push(options.spanProcessor);
  if (options.otlpEndpoint) {
    const { OTLPTraceExporter } = await import("@opentelemetry/exporter-trace-otlp-http");
    const url = `${options.otlpEndpoint.replace(/\/$/, "")}/v1/traces`;
    processors.push(new BatchSpanProcessor({ exporter: new OTLPTraceExporter({ url }) }));
  }
  const traces = new TracerProvider({ spanProcessors: processors });
  async function collect() {
    const { resourceMetrics, errors } = await exporter.collect();
    if (errors.length > 0) throw new AggregateError(errors, "Some metrics could not be read.");
    return resourceMetrics;
  }
  return {
    meter: metrics.getMeter("khala"),
    tracer: processors.length > 0 ? traces.getTracer("khala") : trace.getTracer("khala"),
    scrape: async () => serializer.serialize(await collect()),
    figures: async () => figuresOf(await collect()),
    async shutdown() {
      await Promise.all([metrics.shutdown(), traces.shutdown()]);
    },
  };
}

/** The W3C traceparent of a span, or undefined if it is not recorded. */
export function traceparent(span: Span): string | undefined {
  const { traceId, spanId, traceFlags } = span.spanContext();
  if (!span.isRecording()) return undefined;
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
}

/** The context that a traceparent names, to continue its trace; the root if it names none. */
export function contextOf(parent: string | null | undefined) {
  const match = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(parent ?? "");
  if (!match) return ROOT_CONTEXT;
  const span = {
    traceId: match[1]!,
    spanId: match[2]!,
    traceFlags: Number.parseInt(match[3]!, 16),
    isRemote: true,
  };
  return trace.setSpanContext(context.active(), span);
}

/** Whose work a span is. A span that does not say so is shown to no operator. */
export const ORG = "khala.org_id";

/** The attribute that says whose work it is. */
export function ofOrg(org: string): Attributes {
  return { [ORG]: org };
}

/** Adds a finished step to the trace that `parent` names; does nothing for work that is not traced. */
export function recordSpan(
  telemetry: Telemetry,
  parent: string | null | undefined,
  span: { name: string; from: number; to: number; org: string; attributes: Attributes },
): void {
  if (!parent) return;
  const { name, from, to, org } = span;
  const attributes = { ...span.attributes, ...ofOrg(org) };
  telemetry.tracer.startSpan(name, { startTime: from, attributes }, contextOf(parent)).end(to);
}
