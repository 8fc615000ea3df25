import { KhalaError } from "@khala/contracts";
import { backoff } from "../kit/backoff.ts";
import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import type { Outcome } from "../kit/group_commit.ts";
import { isItemFault, isRepeatable, isUncertain } from "./database.ts";

const REPEATS = 3;

export interface CommitEachOptions<T> {
  /** Commits all of them in one transaction, or throws. */
  readonly commit: (items: readonly T[]) => Promise<Outcome[]>;
  /** Whether a commit may be repeated when its answer was lost. */
  readonly isIdempotent: boolean;
}

/**
 * Commits a batch. Deadlocks are repeated; a batch with a bad item is halved until only its writer gets the error. Any other
 * failure, such as a timeout, concerns the whole batch: all items get it, and the database is not asked again.
 */
export async function commitEach<T>(
  context: Pick<Context, "clock" | "random">,
  items: readonly T[],
  options: CommitEachOptions<T>,
  attempt = 0,
): Promise<Outcome[]> {
  try {
    return await options.commit(items);
  } catch (error) {
    const mayRepeat = isRepeatable(error) || (options.isIdempotent && isUncertain(error));
    if (mayRepeat && attempt < REPEATS) {
      await sleep(context.clock, backoff(attempt, context.random));
      return commitEach(context, items, options, attempt + 1);
    }
    if (items.length === 1 || !isItemFault(error)) {
      const answer = isRepeatable(error) ? busy(error) : error;
      return items.map(() => ({ error: answer }));
    }
    const half = items.length >> 1;
    return [
      ...(await commitEach(context, items.slice(0, half), options, attempt)),
      ...(await commitEach(context, items.slice(half), options, attempt)),
    ];
  }
}

/** The error for a writer whose transaction was repeated too often. */
export function busy(cause: unknown): KhalaError {
  const message = "The database is overloaded. Try again in a moment.";
  return new KhalaError("unavailable", message, { retry_after_ms: 500 }, { cause });
}
