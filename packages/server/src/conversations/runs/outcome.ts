import type { EventJson, PendingCallJson, RunFinishedJson } from "@khala/contracts/conversation/v1";
import type { FailureCode } from "../engines/public_error.ts";
import type { RunEventType } from "../options.ts";

/** A run that failed: what end users see of it, and the exception for operators. */
export interface FailedOutcome {
  readonly kind: "failed";
  readonly code: FailureCode;
  readonly message: string;
  /** Names the entry in the server's log that has the exception. */
  readonly errorId?: string;
  readonly detail?: string;
}

/** The run waits for its tool calls: it has not ended, but no server works on it. */
export interface WaitingOutcome {
  readonly kind: "waiting";
  readonly calls: readonly PendingCallJson[];
}

/** How a run ended. `lost`: another server ends it, and this one writes nothing more. */
export type RunOutcome =
  | WaitingOutcome
  | { readonly kind: "finished"; readonly finished: RunFinishedJson }
  | FailedOutcome
  | { readonly kind: "stopped"; readonly reason: string }
  | { readonly kind: "lost" };

/** An outcome that is stored: the end of the run. */
export type StoredOutcome = Exclude<RunOutcome, { kind: "lost" | "waiting" }>;

/** A failure without an exception. */
export function failed(code: FailureCode, message: string): FailedOutcome {
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
    case "failed": {
      const { code, message, errorId } = outcome;
      return { run_failed: { code, message, ...(errorId !== undefined && { error_id: errorId }) } };
    }
    case "stopped":
      return { run_stopped: { reason: outcome.reason } };
  }
}

/** The outcome in an event of the log, if it ends a run. */
export function outcomeOf(event: EventJson): StoredOutcome | undefined {
  if (event.run_finished) return { kind: "finished", finished: event.run_finished };
  if (event.run_failed) {
    const { code = "engine_failed", message = "", error_id: errorId } = event.run_failed;
    return { ...failed(code as FailureCode, message), ...(errorId && { errorId }) };
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
