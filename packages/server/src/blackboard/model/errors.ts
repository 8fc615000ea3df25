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
