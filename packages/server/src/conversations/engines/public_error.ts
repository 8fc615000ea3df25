/** Why a run failed. */
export type FailureCode =
  | "engine_failed"
  | "timeout"
  | "too_large"
  | "server_lost"
  | "rate_limited"
  | "context_length"
  | "refused"
  | "network";

/** The codes that an engine may give. */
export type EngineFailureCode = Exclude<FailureCode, "server_lost" | "too_large">;

const ENGINE_CODES: ReadonlySet<string> = new Set<EngineFailureCode>([
  "engine_failed",
  "timeout",
  "rate_limited",
  "context_length",
  "refused",
  "network",
]);

/** The code that an engine's service sent, or the general one. */
export function engineFailureCode(code: string | undefined): EngineFailureCode {
  return code !== undefined && ENGINE_CODES.has(code) ? (code as EngineFailureCode) : "engine_failed";
}

/**
 * An error of an engine or a tool whose message end users see as it is. Of every other error they see a plain sentence
 * and an id; the error itself, and the `cause` of this one, go to the server's log.
 */
export class PublicError extends Error {
  override readonly name = "PublicError";
  readonly code: EngineFailureCode;

  constructor(message: string, options: ErrorOptions & { readonly code?: EngineFailureCode } = {}) {
    super(message, options);
    this.code = options.code ?? "engine_failed";
  }
}
