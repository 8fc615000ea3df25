import { SpanStatusCode } from "@opentelemetry/api";
import type { Context } from "../../kit/context.ts";
import { orgAttributes, traceContext, traceparent } from "../../kit/telemetry.ts";
import type { ClaimedRun } from "../store.ts";
import type { Outcome } from "./outcome.ts";

/** A run as a span of the trace that asked for it. */
export interface RunSpan {
  /** What the run does is within this; null when nobody traces. */
  readonly trace: string | null;
  end(outcome: Outcome): void;
}

/** Starts it. What the run publishes is found by the run's id, which is its correlation. */
export function startRunSpan({ telemetry, clock }: Context, run: ClaimedRun): RunSpan {
  const span = telemetry.tracer.startSpan("run", { startTime: clock.now() }, traceContext(run.trace));
  if (span.isRecording())
    span.setAttributes({
      correlation_id: run.runId,
      "khala.run_id": run.runId,
      "khala.conv_id": run.convId,
      ...orgAttributes(run.org),
    });
  return {
    trace: traceparent(span) ?? run.trace,
    end(outcome) {
      span.setAttribute("khala.outcome", outcome.kind);
      if (outcome.kind === "failed") span.setStatus({ code: SpanStatusCode.ERROR, message: outcome.message });
      span.end(clock.now());
    },
  };
}
