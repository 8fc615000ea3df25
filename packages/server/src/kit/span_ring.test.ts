import { SpanStatusCode } from "@opentelemetry/api";
import { expect, test } from "vitest";
import { SpanRing } from "./span_ring.ts";
import { openTelemetry, orgAttributes, traceContext, traceparent } from "./telemetry.ts";

const own = { attributes: orgAttributes("acme") };
/** Small numbers would be times since the process began, once it is older than that. */
const AT = Date.UTC(2026, 0, 1);

async function ring(size?: number) {
  const spans = new SpanRing(size);
  const { tracer } = await openTelemetry({ spanProcessor: spans });
  return { spans, tracer };
}

test("returns a trace's spans by start time, with the failure message", async () => {
  const { spans, tracer } = await ring();
  const parent = tracer.startSpan("request", { startTime: AT, ...own });
  const child = tracer.startSpan("work", { startTime: AT + 10, ...own }, traceContext(traceparent(parent)));
  child.setAttribute("correlation_id", "c1");
  child.setStatus({ code: SpanStatusCode.ERROR, message: "It broke." });
  child.end(AT + 30);
  parent.end(AT + 50);
  const { traceId, spanId } = parent.spanContext();
  expect(spans.trace("acme", traceId)).toMatchObject([
    { name: "request", parentId: undefined, startedAt: AT, durationMs: 50, failed: false },
    { name: "work", parentId: spanId, durationMs: 20, failed: true, message: "It broke." },
  ]);
  expect(spans.trace("acme", "0".repeat(32))).toBeUndefined();
});

test("lists the most recent traces first, optionally of one correlation", async () => {
  const { spans, tracer } = await ring();
  for (const correlation_id of ["a", "b", "a"])
    tracer.startSpan("step", { attributes: { correlation_id, ...orgAttributes("acme") } }).end();
  expect(spans.newest("acme", 10)).toHaveLength(3);
  expect(spans.newest("acme", 2)).toHaveLength(2);
  expect(spans.newest("acme", 10, "a")).toHaveLength(2);
  expect(spans.newest("acme", 10, "none")).toEqual([]);
});

test("shows each org its own spans of a shared trace, and nobody those without an org", async () => {
  const { spans, tracer } = await ring();
  const root = tracer.startSpan("root", own);
  const inside = traceContext(traceparent(root));
  const attributes = { correlation_id: "c", ...orgAttributes("rival") };
  tracer.startSpan("foreign", { attributes }, inside).end();
  tracer.startSpan("unsaid", {}, inside).end();
  root.end();
  const { traceId } = root.spanContext();
  const names = (org: string) => spans.trace(org, traceId)?.map(({ name }) => name);
  expect(names("acme")).toEqual(["root"]);
  expect(names("rival")).toEqual(["foreign"]);
  expect(names("zeta")).toBeUndefined();
  expect(spans.newest("acme", 10).flat()).toMatchObject([{ name: "root" }]);
  expect(spans.newest("acme", 10, "c")).toEqual([]);
  expect(spans.newest("zeta", 10)).toEqual([]);
});

test("evicts the oldest traces first, and the oldest spans of a single trace", async () => {
  const { spans, tracer } = await ring(5);
  const first = tracer.startSpan("first", own);
  first.end();
  for (let i = 0; i < 5; i++) tracer.startSpan(`later ${i}`, own).end();
  expect(spans.trace("acme", first.spanContext().traceId)).toBeUndefined();
  expect(spans.newest("acme", 10)).toHaveLength(5);

  const root = tracer.startSpan("root", own);
  for (let i = 0; i < 20; i++) tracer.startSpan(`child ${i}`, own, traceContext(traceparent(root))).end();
  expect(spans.newest("acme", 10)).toHaveLength(1);
  const names = spans.newest("acme", 10)[0]!.map(({ name }) => name);
  expect(names).toEqual([15, 16, 17, 18, 19].map((i) => `child ${i}`));
});
