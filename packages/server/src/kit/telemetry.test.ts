import { ROOT_CONTEXT, trace } from "@opentelemetry/api";
import { InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace";
import { expect, test } from "vitest";
import { contextOf, openTelemetry, recordSpan, traceparent } from "./telemetry.ts";

test("what is counted is scraped as Prometheus text, milliseconds in buckets", async () => {
  const telemetry = await openTelemetry();
  telemetry.meter.createCounter("things_total", { description: "Things" }).add(3, { kind: "a" });
  telemetry.meter.createHistogram("work_ms", { description: "Work", unit: "ms" }).record(7);
  const text = await telemetry.scrape();
  expect(text).toContain("# HELP things_total Things");
  expect(text).toMatch(/^things_total\{kind="a"\} 3/m);
  expect(text).toMatch(/^work_ms_bucket\{le="5"\} 0/m);
  expect(text).toMatch(/^work_ms_bucket\{le="10"\} 1/m);
  await telemetry.shutdown();
});

test("two servers in one process do not mix", async () => {
  const [one, two] = [await openTelemetry(), await openTelemetry()];
  one.meter.createCounter("mine_total").add(1);
  expect(await one.scrape()).toContain("mine_total");
  expect(await two.scrape()).not.toContain("mine_total");
});

test("a scrape whose instrument fails says so instead of leaving it out", async () => {
  const telemetry = await openTelemetry();
  telemetry.meter.createObservableGauge("broken").addCallback(() => {
    throw new Error("cannot look");
  });
  await expect(telemetry.scrape()).rejects.toThrow("Some metrics could not be read.");
});

test("a trace goes on through a traceparent", async () => {
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

test("what is no traceparent starts at the root", () => {
  for (const text of [undefined, null, "", "00-zz", `00-${"0".repeat(31)}-${"0".repeat(16)}-01`])
    expect(trace.getSpanContext(contextOf(text))).toBeUndefined();
});

test("work that nobody traces has no traceparent", async () => {
  const telemetry = await openTelemetry();
  expect(traceparent(telemetry.tracer.startSpan("unseen"))).toBeUndefined();
});
