import type { Context } from "../../kit/context.ts";
import { PublicError } from "../engines/public_error.ts";
import type { FailedOutcome } from "./outcome.ts";

const MAX_MESSAGE = 1_000;
const MAX_DETAIL = 4_000;
const MAX_CAUSES = 4;

/** The run that an error belongs to. */
interface FailingRun {
  readonly runId: string;
  readonly org: string;
  readonly convId: string;
}

/** Logs what an engine threw, or what else failed, under a new id. Returns what end users see of it. */
export function engineFailure(
  context: Context,
  run: FailingRun,
  error: unknown,
  what = "an engine failed",
): FailedOutcome {
  const errorId = logError(context, run, error, what);
  const more = { errorId, detail: detailOf(error) };
  if (error instanceof PublicError)
    return { kind: "failed", code: error.code, message: publicText(error), ...more };
  const message = `The answer could not be completed (error ${errorId}). Send the message again.`;
  return { kind: "failed", code: "engine_failed", message, ...more };
}

/** Logs what a tool threw under a new id. Returns the sentence for end users. */
export function toolFailure(context: Context, run: FailingRun, error: unknown): string {
  const errorId = logError(context, run, error, "a tool failed");
  return error instanceof PublicError ? publicText(error) : `The tool failed (error ${errorId}).`;
}

function logError(
  context: Context,
  { runId, org, convId }: FailingRun,
  error: unknown,
  what: string,
): string {
  const errorId = context.newId();
  context.log.warn({ err: error, error_id: errorId, run: runId, conversation: convId, org }, what);
  return errorId;
}

function publicText({ message }: PublicError): string {
  return storable(message, MAX_MESSAGE) || "The answer could not be completed.";
}

/** The error and its causes, for operators. */
function detailOf(error: unknown): string {
  const texts: string[] = [];
  for (let cause = error; cause !== undefined && texts.length <= MAX_CAUSES; cause = Object(cause).cause)
    texts.push(cause instanceof Error ? (cause.stack ?? `${cause.name}: ${cause.message}`) : textOf(cause));
  return storable(texts.join("\nCaused by: "), MAX_DETAIL);
}

function textOf(value: unknown): string {
  try {
    return typeof value === "string" ? value : (JSON.stringify(value) ?? String(value));
  } catch {
    return "an error that cannot be written as text";
  }
}

/** Without characters that PostgreSQL refuses. */
function storable(text: string, length: number): string {
  return text.slice(0, length).toWellFormed().replaceAll("\0", "");
}
