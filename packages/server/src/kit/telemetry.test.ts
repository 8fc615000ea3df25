import { ROOT_CONTEXT, trace } from "@opentelemetry/api";
import { InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace";
import { expect, test } from "vitest";
import {
  durations,
  openTelemetry,
  readResource,
  recordSpan,
  traceContext,
  traceparent,
} from "./telemetry.ts";

test("scrapes metrics as Prometheus text, with durations in seconds", async () => {
  const telemetry = await openTelemetry();
  telemetry.meter.createCounter("things_total", { description: "Things" }).add(3, { kind: "a" });
  durations(telemetry.meter, "work_seconds", "Work").record(7);
  const text = await telemetry.scrape();
  expect(text).toContain("# HELP things_total Things");
  expect(text).toMatch(/^things_total\{kind="a"\} 3/m);
  expect(text).toMatch(/^work_seconds_bucket\{le="0.005"\} 0/m);
  expect(text).toMatch(/^work_seconds_bucket\{le="0.01"\} 1/m);
  await telemetry.shutdown();
});

test("identifies the service, with the settings of OpenTelemetry", async () => {
  const exporter = new InMemorySpanExporter();
  const telemetry = await openTelemetry({
    resource: readResource(
      "shop",
      "deployment.environment.name=staging,team=blue%20sky,service.name=other,broken",
    ),
    spanProcessor: new SimpleSpanProcessor({ exporter }),
  });
  telemetry.tracer.startSpan("work").end();
  expect(exporter.getFinishedSpans()[0]!.resource.attributes).toMatchObject({
    "service.name": "shop",
    "deployment.environment.name": "staging",
    team: "blue sky",
  });
  expect(await telemetry.scrape()).toMatch(/^target_info\{.*service_name="shop".*\} 1$/m);
  await telemetry.shutdown();
});

test("two servers in one process have separate metrics", async () => {
  const [one, two] = [await openTelemetry(), await openTelemetry()];
  one.meter.createCounter("mine_total").add(1);
  expect(await one.scrape()).toContain("mine_total");
  expect(await two.scrape()).not.toContain("mine_total");
});

test("reports a failing instrument as an error of the scrape", async () => {
  const telemetry = await openTelemetry();
  telemetry.meter.createObservableGauge("broken").addCallback(() => {
    throw new Error("cannot look");
  });
  await expect(telemetry.scrape()).rejects.toThrow("Some metrics could not be read.");
});

test("continues the trace of a traceparent", async () => {
  const exporter = new InMemorySpanExporter();
  const telemetry = await openTelemetry({ spanProcessor: new SimpleSpanProcessor({ exporter }) });
  const root = telemetry.tracer.startSpan("root", {}, ROOT_CONTEXT);
  const parent = traceparent(root);
  expect(parent).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
  root.end();
  recordSpan(telemetry, parent, {
    name: "later",
    from: 1_000,
    to: 2_000,
    org: "acme",
    attributes: { step: 1 },
  });
  recordSpan(telemetry, null, { name: "untraced", from: 1_000, to: 2_000, org: "acme", attributes: {} });
  const spans = exporter.getFinishedSpans();
  expect(spans.map(({ name }) => name)).toEqual(["root", "later"]);
  expect(spans[1]!.spanContext().traceId).toBe(root.spanContext().traceId);
  expect(spans[1]!.parentSpanContext?.spanId).toBe(root.spanContext().spanId);
});

test("starts a root span for an invalid traceparent", () => {
  for (const text of [undefined, null, "", "00-zz", `00-${"0".repeat(31)}-${"0".repeat(16)}-01`])
    expect(trace.getSpanContext(traceContext(text))).toBeUndefined();
});

test("gives no traceparent for work without a trace", async () => {
  const telemetry = await openTelemetry();
  expect(traceparent(telemetry.tracer.startSpan("unseen"))).toBeUndefined();
});

test("sums a metric over the series with the labels", async () => {
  const { meter, metricValues } = await openTelemetry();
  const counter = meter.createCounter("khala_things_total");
  counter.add(2, { kind: "a", place: "x" });
  counter.add(3, { kind: "b", place: "x" });
  meter.createObservableGauge("khala_open").addCallback((result) => {
    result.observe(4, { kind: "a" });
    result.observe(5, { kind: "b" });
  });
  meter.createHistogram("khala_ms").record(1);
  const { sum } = await metricValues();
  expect(sum("khala_things_total")).toBe(5);
  expect(sum("khala_things_total", { kind: "b", place: "x" })).toBe(3);
  expect(sum("khala_things_total", { kind: "c" })).toBe(0);
  expect(sum("khala_open")).toBe(9);
  expect(sum("khala_ms")).toBe(0);
  expect(sum("khala_unknown")).toBe(0);
});
