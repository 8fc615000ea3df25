import { KhalaError } from "@khala/contracts";
import type { EventJson, RunFinishedJson } from "@khala/contracts/conversation/v1";
import type { RunEventType } from "../options.ts";

/** Why a run failed. */
export type FailureCode = "engine_failed" | "timeout" | "too_large" | "server_lost";

/** How a run ended. `lost` is one that somebody else ends: this server writes nothing more of it. */
export type Outcome =
  | { readonly kind: "finished"; readonly finished: RunFinishedJson }
  | { readonly kind: "failed"; readonly code: FailureCode; readonly message: string }
  | { readonly kind: "stopped"; readonly reason: string }
  | { readonly kind: "lost" };

/** An end that is written down. */
export type WrittenOutcome = Exclude<Outcome, { kind: "lost" }>;

/** A failure with what people are told. */
export function failed(code: FailureCode, message: string): WrittenOutcome {
  return { kind: "failed", code, message };
}

/** What becomes of a run whose server is gone. */
export const SERVER_LOST = failed(
  "server_lost",
  "The server that made this answer was lost. Send the message again.",
);

/** The last event of a run in its conversation's log. */
export function endEvent(outcome: WrittenOutcome): EventJson {
  switch (outcome.kind) {
    case "finished":
      return { run_finished: outcome.finished };
    case "failed":
      return { run_failed: { code: outcome.code, message: outcome.message } };
    case "stopped":
      return { run_stopped: { reason: outcome.reason } };
  }
}

/** The end that an event of the log says, if it says one. */
export function outcomeOf(event: EventJson): WrittenOutcome | undefined {
  if (event.run_finished) return { kind: "finished", finished: event.run_finished };
  if (event.run_failed) {
    const { code = "engine_failed", message = "" } = event.run_failed;
    return failed(code as FailureCode, message);
  }
  if (event.run_stopped) return { kind: "stopped", reason: event.run_stopped.reason ?? "stopped" };
  return undefined;
}

/** The last event of a run in the authority log. */
export function authorityEnd(outcome: WrittenOutcome): [RunEventType, object] {
  switch (outcome.kind) {
    case "finished":
      return ["run.completed", {}];
    case "failed":
      return ["run.failed", { error: outcome.message }];
    case "stopped":
      return ["run.stopped", {}];
  }
}

/** What may be shown and stored of a text from anywhere: one line, bounded, valid everywhere. */
export function readable(text: string, length: number): string {
  const line = text
    .toWellFormed()
    .split(/[\r\n]/, 1)[0]!
    .replaceAll("\0", "");
  const characters = Array.from(line);
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : line;
}

/** What people are told when an engine throws: what it said, never where in the code. */
export function engineFailure(error: unknown): WrittenOutcome {
  const said = readable(error instanceof Error ? error.message : String(error), 300);
  if (error instanceof KhalaError) return failed("engine_failed", said);
  return failed("engine_failed", `The answer could not be completed: ${said || "the engine failed"}`);
}
