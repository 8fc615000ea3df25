import { expect, test } from "vitest";
import { openTelemetry } from "./telemetry.ts";

test("counters and gauges are summed over the series that have the labels", async () => {
  const { meter, figures } = await openTelemetry();
  const counter = meter.createCounter("khala_things_total");
  counter.add(2, { kind: "a", place: "x" });
  counter.add(3, { kind: "b", place: "x" });
  meter.createObservableGauge("khala_open").addCallback((result) => {
    result.observe(4, { kind: "a" });
    result.observe(5, { kind: "b" });
  });
  meter.createHistogram("khala_ms").record(1);
  const { sum } = await figures();
  expect(sum("khala_things_total")).toBe(5);
  expect(sum("khala_things_total", { kind: "b", place: "x" })).toBe(3);
  expect(sum("khala_things_total", { kind: "c" })).toBe(0);
  expect(sum("khala_open")).toBe(9);
  expect(sum("khala_ms")).toBe(0);
  expect(sum("khala_unknown")).toBe(0);
});
