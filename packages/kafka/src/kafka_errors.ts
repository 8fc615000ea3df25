import { KhalaError } from "@khala/contracts";
import type { Context } from "@khala/server/blackboard";

// Codes of librdkafka (negative) and of the brokers. Its flags `fatal`, `retriable` and `abortable` are never set.
const FENCED = new Set([-144, 47, 90]);
const FATAL = -150;
const TIMED_OUT = -185;
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

/** A transaction that the brokers ended because it took too long: the next one may well succeed. */
export function givenUp(error: unknown): KhalaError {
  return new KhalaError(
    "unavailable",
    `Kafka ended a transaction that took too long, and nothing was written: ${(error as Error).message}. Try again.`,
    { retry_after_ms: 500 },
    { cause: error },
  );
}

/** Makes the same call again while it answers that its time was over: it goes on behind that answer. */
export async function repeated(
  { clock }: Pick<Context, "clock">,
  limitMs: number,
  call: () => Promise<void>,
): Promise<void> {
  const deadline = clock.now() + limitMs;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (kafkaCode(error) !== TIMED_OUT || clock.now() >= deadline) throw error;
    }
  }
}

/** An error of the client as one of the table, that says what to do; others stay as they are. */
export function explained(error: unknown): unknown {
  const code = kafkaCode(error);
  if (error instanceof KhalaError || code === undefined) return error;
  const reason = (error as Error).message;
  const options = { cause: error };
  if (isFenced(error))
    return new KhalaError(
      "stale_producer",
      `Another producer has taken over, or this process stood still for too long: nothing was written. (Kafka: ${reason})`,
      {},
      options,
    );
  if (TOO_LARGE.has(code))
    return new KhalaError(
      "payload_too_large",
      `Kafka refuses the record as too large: ${reason}. Send less, or raise max.message.bytes of the topic and the board's limit.`,
      {},
      options,
    );
  return new KhalaError(
    "unavailable",
    `Kafka did not take it: ${reason} (${code}). Try again.`,
    { retry_after_ms: 500 },
    options,
  );
}
