import { KhalaError } from "@khala/contracts";
import { type Context, sleep } from "@khala/server/blackboard";

// Codes of librdkafka (negative) and of the brokers. Its flags `fatal`, `retriable` and `abortable` are never set.
const FENCED = new Set([-144, 47, 90]);
const FATAL = -150;
const TIMED_OUT: ReadonlySet<number> = new Set([-185]);
const MESSAGE_TIMED_OUT = -192;
/** The code of a call abandoned by this module. */
const UNANSWERED = -1_000;
/** The coordinator loads or moves, or still ends the last transaction: each passes within seconds. */
const COORDINATOR_MOVES: ReadonlySet<number> = new Set([14, 15, 16, 51]);
const TOO_LARGE = new Set([10, 18]);

/** The code of an error of the client, if it is one. */
export function kafkaCode(error: unknown): number | undefined {
  const code = (error as { readonly code?: unknown } | undefined)?.code;
  return typeof code === "number" ? code : undefined;
}

/** Whether another producer with the same transactional id has taken over, or the brokers gave this one up. */
export function isFenced(error: unknown): boolean {
  const code = kafkaCode(error);
  if (code === undefined) return false;
  return FENCED.has(code) || (code === FATAL && /fenced/i.test((error as Error).message));
}

/** Whether a call of the client, or a record given to it, ended without an answer. */
export function isTimeout(error: unknown): boolean {
  return TIMED_OUT.has(kafkaCode(error) ?? 0) || isUndelivered(error);
}

/** Whether no broker took a record in time. */
export function isUndelivered(error: unknown): boolean {
  return kafkaCode(error) === MESSAGE_TIMED_OUT;
}

/** An abandoned call: the client itself would wait for ever. */
export function noAnswer(what: string): Error {
  return Object.assign(new Error(`${what} got no answer`), { code: UNANSWERED });
}

/** Whether an abandoned call is still running. */
export function isUnanswered(error: unknown): boolean {
  return kafkaCode(error) === UNANSWERED;
}

/** A transaction that the brokers ended because it took too long: the next one may succeed. */
export function transactionTimedOut(error: unknown): KhalaError {
  return new KhalaError(
    "unavailable",
    "Kafka ended a transaction that took too long, and nothing was written. Try again.",
    { retry_after_ms: 500 },
    { cause: error },
  );
}

/** Repeats a call after a timeout of the client: the operation continues behind it. */
export function retryTimeouts(
  context: Pick<Context, "clock">,
  limitMs: number,
  call: () => Promise<void>,
): Promise<void> {
  return retryOn(context, { limitMs, codes: TIMED_OUT }, call);
}

/** Repeats a call, after a pause, while no broker coordinates its transactions. */
export function retryWithoutCoordinator<T>(
  context: Pick<Context, "clock">,
  limitMs: number,
  call: () => Promise<T>,
): Promise<T> {
  return retryOn(context, { limitMs, codes: COORDINATOR_MOVES, pauseMs: 250 }, call);
}

interface RetryRule {
  readonly limitMs: number;
  readonly codes: ReadonlySet<number>;
  readonly pauseMs?: number;
}

async function retryOn<T>(
  { clock }: Pick<Context, "clock">,
  { limitMs, codes, pauseMs }: RetryRule,
  call: () => Promise<T>,
): Promise<T> {
  const deadline = clock.now() + limitMs;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!codes.has(kafkaCode(error) ?? 0) || clock.now() >= deadline) throw error;
    }
    if (pauseMs) await sleep(clock, pauseMs);
  }
}

/** Converts an error of the client to one of the error table; others stay unchanged. The log has the client's own text. */
export function toKhalaError({ log }: Pick<Context, "log">, error: unknown): unknown {
  const code = kafkaCode(error);
  if (error instanceof KhalaError || code === undefined) return error;
  log.warn({ err: (error as Error).message, code }, "Kafka did not accept a write");
  const options = { cause: error };
  if (isFenced(error))
    return new KhalaError(
      "stale_producer",
      "Nothing was written: another producer has taken over, or this process was suspended for too long.",
      {},
      options,
    );
  if (TOO_LARGE.has(code))
    return new KhalaError(
      "payload_too_large",
      "The record is too large for Kafka. Send less, or raise max.message.bytes of the topic and the board's limit.",
      {},
      options,
    );
  return new KhalaError(
    "unavailable",
    "Kafka did not accept the write. Try again.",
    { retry_after_ms: 500 },
    options,
  );
}
