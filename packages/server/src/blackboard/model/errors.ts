import type { Failure } from "./task.ts";
/** Thrown by an agent: retry, as for any error that is not classified. */
export class RetryableError extends Error {
  override readonly name: string = "RetryableError";
}

/** Thrown by an agent: a retry cannot help, so the task becomes a dead letter at once. */
export class FatalError extends Error {
  override readonly name: string = "FatalError";
}

/** Thrown by an agent: the called service asks to wait. It does not count against the circuit breaker. */
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
/** The text is cut to this length before masking, so that a cut never splits a secret. */
const MAX_READ = 65_536;
const MAX_CAUSES = 3;
/** NUL cannot be stored, and other control characters take six bytes each in JSON. Line breaks and tabs are kept. */
const CONTROL = /[^\P{Cc}\n\t]/gu;
/** User and password in a URL. The scheme is bounded, so that a long word does not cost quadratic time. */
const CREDENTIALS = /\b([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/?#]*@/gi;

/** The failure for a thrown value: bounded, storable as text, and without credentials in URLs. Never throws. */
export function failureOf(thrown: unknown, kind: Failure["kind"]): Failure {
  try {
    return makeFailure(kind, describe(thrown));
  } catch {
    // A getter or toString of the thrown value threw.
    return { class: "Error", message: "The thrown value could not be read.", kind };
  }
}

/** The failure for a class and message of our own or of a remote worker, bounded and cleaned in the same way. */
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
  // `fetch failed` alone explains nothing; its cause does.
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

/** Cuts text to a number of UTF-8 bytes, and replaces characters that PostgreSQL cannot store. */
function cut(text: string, bytes: number): string {
  const clean = text
    .slice(0, MAX_READ)
    .toWellFormed()
    .replace(CONTROL, "\ufffd")
    .replace(CREDENTIALS, "$1***@");
  const encoded = Buffer.from(clean);
  if (encoded.length <= bytes) return clean;
  let end = bytes - Buffer.byteLength("…");
  // Do not cut in the middle of a character.
  while (end > 0 && (encoded[end]! & 0xc0) === 0x80) end--;
  return `${encoded.toString("utf8", 0, end)}…`;
}
