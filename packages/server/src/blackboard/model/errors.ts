import type { Failure } from "./task.ts";
/** Thrown by an agent: try again, as for any error that is not classified. */
export class RetryableError extends Error {
  override readonly name: string = "RetryableError";
}

/** Thrown by an agent: no repetition can help, the task is a dead letter at once. */
export class FatalError extends Error {
  override readonly name: string = "FatalError";
}

/** Thrown by an agent: whoever it called asks to wait. Does not count against the breaker. */
export class RateLimitedError extends Error {
  override readonly name: string = "RateLimitedError";
  readonly retryAfterMs: number;

  constructor(message: string, retryAfterMs: number) {
    super(message);
    this.retryAfterMs = retryAfterMs;
  }
}

const MAX_CLASS = 200;
const MAX_MESSAGE = 2_048;
const MAX_STACK = 8_192;
/** So much is looked at before it is cut: enough that a cut never halves what must be masked. */
const MAX_READ = 65_536;
const MAX_CAUSES = 3;
/** NUL cannot be stored, and the others are six bytes each in JSON; a line's end and a tab are welcome. */
const CONTROL = /[^\P{Cc}\n\t]/gu;
/** The user and password of an address. The scheme is bounded, so that a long word costs no square of its length. */
const CREDENTIALS = /\b([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/?#]*@/gi;

/** A failure of whatever was thrown: bounded, storable as text, without the credentials of addresses. Never throws. */
export function failureOf(thrown: unknown, kind: Failure["kind"]): Failure {
  try {
    return makeFailure(kind, describe(thrown));
  } catch {
    // A getter or a toString of the thrown value itself threw.
    return { class: "Error", message: "The error could not be read.", kind };
  }
}

/** A failure in words of one's own, or of a worker elsewhere: bounded and cleaned as above. */
export function makeFailure(
  kind: Failure["kind"],
  said: { readonly class: string; readonly message: string; readonly stack?: string | undefined },
): Failure {
  const stack = said.stack ? cut(said.stack, MAX_STACK) : undefined;
  return {
    class: cut(said.class, MAX_CLASS) || "Error",
    message: cut(said.message, MAX_MESSAGE),
    ...(stack && { stack }),
    kind,
  };
}

function describe(thrown: unknown): { class: string; message: string; stack?: string } {
  if (!(thrown instanceof Error)) return { class: typeof thrown, message: textOf(thrown) };
  const causes: string[] = [];
  let cause: unknown = thrown.cause;
  // `fetch failed` says nothing: why is in its cause.
  for (
    ;
    cause !== undefined && causes.length < MAX_CAUSES;
    cause = cause instanceof Error ? cause.cause : undefined
  )
    causes.push(cause instanceof Error ? cause.message : textOf(cause));
  const message = [thrown.message, ...causes].join("; caused by: ");
  return {
    class: `${thrown.name}`,
    message,
    ...(typeof thrown.stack === "string" && { stack: thrown.stack }),
  };
}

function textOf(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(value);
  return JSON.stringify(value) ?? String(value);
}

/** At most so many bytes of UTF-8, of text that PostgreSQL can store and JSON does not blow up. */
function cut(text: string, bytes: number): string {
  const clean = text
    .slice(0, MAX_READ)
    .toWellFormed()
    .replace(CONTROL, "\ufffd")
    .replace(CREDENTIALS, "$1***@");
  const encoded = Buffer.from(clean);
  if (encoded.length <= bytes) return clean;
  let end = bytes - Buffer.byteLength("…");
  // Not in the middle of a character.
  while (end > 0 && (encoded[end]! & 0xc0) === 0x80) end--;
  return `${encoded.toString("utf8", 0, end)}…`;
}
