import {
  type Attributes,
  context,
  type Meter,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { PrometheusExporter, PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import { resourceFromAttributes } from "@opentelemetry/resources";
import {
  AggregationType,
  DataPointType,
  MeterProvider,
  type ResourceMetrics,
} from "@opentelemetry/sdk-metrics";
import { BatchSpanProcessor, type SpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import { loadOptional } from "./optional_package.ts";

/** Bounds of histograms in seconds, from "in memory" to "something is wrong". */
const BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** A histogram of durations: they are measured in milliseconds and reported in seconds. */
export interface Durations {
  record(ms: number, attributes?: Attributes): void;
}

/** Creates a histogram of durations. Its name ends in `_seconds`. */
export function durations(meter: Meter, name: string, description: string): Durations {
  const histogram = meter.createHistogram(name, { description, unit: "s" });
  return { record: (ms, attributes) => histogram.record(ms / 1_000, attributes) };
}

/** The values of counters and gauges at one moment. */
export interface MetricValues {
  /** The sum over all series of a metric with these labels; 0 when there are none. */
  sum(name: string, labels?: Readonly<Record<string, string>>): number;
}

/** The server's telemetry: metrics for a scrape, and spans for an exporter. */
export interface Telemetry {
  readonly meter: Meter;
  readonly tracer: Tracer;
  /** The Prometheus text of all metrics now. */
  scrape(): Promise<string>;
  /** Counters and gauges now, as numbers. */
  metricValues(): Promise<MetricValues>;
  /** Exports the pending spans, then stops. */
  shutdown(): Promise<void>;
}

export interface TelemetryOptions {
  /** OTLP over HTTP, such as `http://127.0.0.1:4318`; spans are dropped without it. */
  readonly otlpEndpoint?: string;
  /** The attributes of the service, such as its `service.name`: on every span, and as `target_info` in the metrics. */
  readonly resource?: Attributes;
  /** An additional processor for every span. */
  readonly spanProcessor?: SpanProcessor;
}

/** The attributes that OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME name, of which the latter wins. Invalid pairs are ignored. */
export function readResource(serviceName: string | undefined, attributes = ""): Attributes {
  const pairs = attributes.split(",").flatMap((pair) => {
    const [, key, value] = /^\s*([^=\s]+)\s*=\s*(.*?)\s*$/.exec(pair) ?? [];
    return key && value !== undefined ? [[key, decoded(value)] as const] : [];
  });
  return { ...Object.fromEntries(pairs), ...(serviceName && { "service.name": serviceName }) };
}

/** Commas and equals signs in values are percent-encoded. */
function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/** Opens telemetry for one server. Nothing is global: two servers in one process do not mix. */
export async function openTelemetry(options: TelemetryOptions = {}): Promise<Telemetry> {
  const exporter = new PrometheusExporter({ preventServerStart: true });
  const resource = resourceFromAttributes({ "service.name": "khala", ...options.resource });
  // One series identifies the service; no series identifies the library.
  const serializer = new PrometheusSerializer(undefined, false, undefined, false, true);
  const metrics = new MeterProvider({
    resource,
    readers: [exporter],
    views: [
      {
        instrumentUnit: "s",
        aggregation: { type: AggregationType.EXPLICIT_BUCKET_HISTOGRAM, options: { boundaries: BUCKETS } },
      },
    ],
  });
  const processors: SpanProcessor[] = [];
  if (options.spanProcessor) processors.push(options.spanProcessor);
  if (options.otlpEndpoint) {
    const { OTLPTraceExporter } = await loadOptional(
      "@opentelemetry/exporter-trace-otlp-http",
      "OTEL_EXPORTER_OTLP_ENDPOINT",
      () => import("@opentelemetry/exporter-trace-otlp-http"),
    );
    const url = `${options.otlpEndpoint.replace(/\/$/, "")}/v1/traces`;
    processors.push(new BatchSpanProcessor({ exporter: new OTLPTraceExporter({ url }) }));
  }
  const traces = new TracerProvider({ resource, spanProcessors: processors });
  async function collect() {
    const { resourceMetrics, errors } = await exporter.collect();
    if (errors.length > 0) throw new AggregateError(errors, "Some metrics could not be read.");
    return resourceMetrics;
  }
  return {
    meter: metrics.getMeter("khala"),
    tracer: processors.length > 0 ? traces.getTracer("khala") : trace.getTracer("khala"),
    scrape: async () => serializer.serialize(await collect()),
    metricValues: async () => readMetricValues(await collect()),
    async shutdown() {
      await Promise.all([metrics.shutdown(), traces.shutdown()]);
    },
  };
}

/** Reads the values out of a collection, without histograms. */
function readMetricValues({ scopeMetrics }: ResourceMetrics): MetricValues {
  const metrics = new Map(
    scopeMetrics.flatMap(({ metrics: all }) => all.map((each) => [each.descriptor.name, each])),
  );
  return {
    sum(name, labels = {}) {
      const metric = metrics.get(name);
      if (metric?.dataPointType !== DataPointType.SUM && metric?.dataPointType !== DataPointType.GAUGE)
        return 0;
      const wanted = Object.entries(labels);
      let sum = 0;
      for (const { attributes, value } of metric.dataPoints)
        if (wanted.every(([label, text]) => attributes[label] === text)) sum += value;
      return sum;
    },
  };
}

/** The W3C traceparent of a span, or undefined if it is not recorded. */
export function traceparent(span: Span): string | undefined {
  const { traceId, spanId, traceFlags } = span.spanContext();
  if (!span.isRecording()) return undefined;
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
}

/** The OpenTelemetry context of a traceparent, to continue its trace; the root context without a valid one. */
export function traceContext(parent: string | null | undefined) {
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

/** The span attribute with the org. A span without it is shown to no operator. */
export const ORG = "khala.org_id";

/** The span attributes that name the org. */
export function orgAttributes(org: string): Attributes {
  return { [ORG]: org };
}

/** The name and attributes of the span of an HTTP request, by OpenTelemetry's conventions. */
export function httpSpan(
  method: string,
  route: string,
  org: string,
): { name: string; attributes: Attributes } {
  const attributes = { "http.request.method": method, "http.route": route, ...orgAttributes(org) };
  return { name: `${method} ${route}`, attributes };
}

/** Handles a request in a span that continues its trace. `work` gets what its own work is traced by, if that is recorded. */
export async function inServerSpan<T>(
  { tracer }: Telemetry,
  { name, attributes, parent }: { name: string; attributes: Attributes; parent: string | undefined },
  work: (traced: { readonly trace?: string }) => Promise<T>,
): Promise<T> {
  const span = tracer.startSpan(name, { kind: SpanKind.SERVER, attributes }, traceContext(parent));
  try {
    const trace = traceparent(span);
    return await work(trace === undefined ? {} : { trace });
  } finally {
    span.end();
  }
}

/** Adds a finished span to the trace of `parent`; does nothing without a trace. */
export function recordSpan(
  telemetry: Telemetry,
  parent: string | null | undefined,
  span: { name: string; from: number; to: number; org: string; attributes: Attributes },
): void {
  if (!parent) return;
  const { name, from, to, org } = span;
  const attributes = { ...span.attributes, ...orgAttributes(org) };
  telemetry.tracer.startSpan(name, { startTime: from, attributes }, traceContext(parent)).end(to);
}
