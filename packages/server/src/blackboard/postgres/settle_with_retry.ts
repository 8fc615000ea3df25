import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { Claim } from "./claim_store.ts";

/**
 * Repeats a settlement that failed, until its outcome is known or the signal aborts. Answers whether the claim was still
 * there; undefined if that is not known.
 */
export async function settleWithRetry(
  { clock, random, log }: Context,
  { task }: Claim,
  settle: () => Promise<boolean>,
  signal: AbortSignal,
  failure: Error,
): Promise<boolean | undefined> {
  const { agent, id } = task;
  let { message } = failure;
  for (let failures = 0; ; failures++) {
    if (signal.aborted) {
      log.warn({ err: message, agent, task: id }, "a task was not settled; it runs again");
      return undefined;
    }
    log.warn({ err: message, agent, task: id }, "a task could not be settled yet");
    await sleep(clock, backoff(failures, random, { base: 50, cap: 2_000 }), signal);
    try {
      return await settle();
    } catch (error) {
      ({ message } = error as Error);
    }
  }
}
