import { backoff } from "../../kit/backoff.ts";
import type { Random } from "../../kit/ids.ts";
import type { Agent } from "../model/agent.ts";
import { FatalError, failureOf, RateLimitedError, RetryableError } from "../model/errors.ts";
import type { Settlement, Task } from "../model/task.ts";

/** The longest accepted delay of a rate limit. */
const MAX_WAIT_MS = 24 * 3_600_000;

type Meaning = "retryable" | "fatal" | { readonly rateLimitedMs: number };

/** The settlement of a task whose attempt threw. */
export function settlementForError(
  error: unknown,
  task: Pick<Task, "attempt">,
  { retry }: Pick<Agent, "retry">,
  random: Random,
): Exclude<Settlement, { kind: "done" }> {
  const meaning = meaningOf(error, retry.classify);
  const kind = typeof meaning === "object" ? "rate_limited" : meaning;
  const failure = failureOf(error, kind);
  if (meaning === "fatal" || task.attempt >= retry.attempts) return { kind: "dead", failure };
  const delayMs =
    typeof meaning === "object" ? bounded(meaning.rateLimitedMs) : backoff(task.attempt - 1, random, retry);
  return { kind: "retry", failure, delayMs: Math.ceil(delayMs) };
}

/** By the error's class, else by the agent's classifier. An unclassified error is retryable. */
function meaningOf(error: unknown, classify: Agent["retry"]["classify"]): Meaning {
  if (error instanceof FatalError) return "fatal";
  if (error instanceof RateLimitedError) return { rateLimitedMs: error.retryAfterMs };
  if (error instanceof RetryableError || !classify) return "retryable";
  try {
    const meaning = classify(error);
    if (typeof meaning !== "object" || meaning === null) return meaning === "fatal" ? "fatal" : "retryable";
    return typeof meaning.rateLimitedMs === "number" ? meaning : "retryable";
  } catch {
    // Report the agent's error, not that of its classifier.
    return "retryable";
  }
}

function bounded(ms: number): number {
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(0, ms), MAX_WAIT_MS);
}
