import { KhalaError } from "@khala/contracts";
import type { EventJson, RunFinishedJson } from "@khala/contracts/conversation/v1";
import type { RunEventType } from "../options.ts";

/** Why a run failed. */
export type FailureCode = "engine_failed" | "timeout" | "too_large" | "server_lost";

/** How a run ended. `lost`: another server ends it, and this one writes nothing more. */
export type RunOutcome =
  | { readonly kind: "finished"; readonly finished: RunFinishedJson }
  | { readonly kind: "failed"; readonly code: FailureCode; readonly message: string }
  | { readonly kind: "stopped"; readonly reason: string }
  | { readonly kind: "lost" };

/** An outcome that is stored. */
export type StoredOutcome = Exclude<RunOutcome, { kind: "lost" }>;

/** A failure with a message for users. */
export function failed(code: FailureCode, message: string): StoredOutcome {
  return { kind: "failed", code, message };
}

/** The outcome of a run whose server was lost. */
export const SERVER_LOST = failed(
  "server_lost",
  "The server that was answering was lost. Send the message again.",
);

/** The last event of a run in its conversation's log. */
export function endEvent(outcome: StoredOutcome): EventJson {
  switch (outcome.kind) {
    case "finished":
      return { run_finished: outcome.finished };
    case "failed":
      return { run_failed: { code: outcome.code, message: outcome.message } };
    case "stopped":
      return { run_stopped: { reason: outcome.reason } };
  }
}

/** The outcome in an event of the log, if it ends a run. */
export function outcomeOf(event: EventJson): StoredOutcome | undefined {
  if (event.run_finished) return { kind: "finished", finished: event.run_finished };
  if (event.run_failed) {
    const { code = "engine_failed", message = "" } = event.run_failed;
    return failed(code as FailureCode, message);
  }
  if (event.run_stopped) return { kind: "stopped", reason: event.run_stopped.reason ?? "stopped" };
  return undefined;
}

/** The last event of a run in the authority log. */
export function authorityEnd(outcome: StoredOutcome): [RunEventType, object] {
  switch (outcome.kind) {
    case "finished":
      return ["run.completed", {}];
    case "failed":
      return ["run.failed", { error: outcome.message }];
    case "stopped":
      return ["run.stopped", {}];
  }
}

/** The first line of a text, shortened, without characters that cannot be stored. */
export function shortLine(text: string, length: number): string {
  const line = text
    .toWellFormed()
    .split(/[\r\n]/, 1)[0]!
    .replaceAll("\0", "");
  const characters = Array.from(line);
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : line;
}

/** The failure for users when an engine throws: its message, without a stack. */
export function engineFailure(error: unknown): StoredOutcome {
  const reason = shortLine(error instanceof Error ? error.message : String(error), 300);
  if (error instanceof KhalaError) return failed("engine_failed", reason);
  return failed("engine_failed", `The answer could not be completed: ${reason || "the engine failed"}`);
}
