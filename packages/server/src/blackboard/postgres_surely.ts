import { backoff } from "../kit/backoff.ts";
import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import type { Claimed } from "./postgres_settling.ts";

/** Settles until it is certain, or the signal aborts. Answers whether the claim was still there; undefined if unknown. */
export async function settleSurely(
  { clock, random, log }: Context,
  { task }: Claimed,
  settle: () => Promise<boolean>,
  signal: AbortSignal,
): Promise<boolean | undefined> {
  const { agent, id } = task;
  for (let failures = 0; ; failures++) {
    try {
      return await settle();
    } catch (error) {
      const { message } = error as Error;
      if (signal.aborted) {
        log.warn({ err: message, agent, task: id }, "a task was not settled; it runs again");
        return undefined;
      }
      log.warn({ err: message, agent, task: id }, "a task could not be settled yet");
      await sleep(clock, backoff(failures, random, { base: 50, cap: 2_000 }), signal);
    }
  }
}
