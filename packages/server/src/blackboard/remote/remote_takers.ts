import { KhalaError } from "@khala/contracts";
import type { ClaimJson } from "@khala/contracts/blackboard/v1";
import type { Context } from "../../kit/context.ts";
import { Wake } from "../../kit/service.ts";
import type { ClaimAsk } from "../plane.ts";
import type { Claims } from "./remote_claims.ts";

/** Workers that wait for a task. */
export interface Takers {
  claim(agent: string, ask: ClaimAsk, signal: AbortSignal): Promise<ClaimJson[]>;
  /** There may be a task for somebody. */
  offered(agent: string): void;
  /** Sends everybody away. */
  stop(): void;
}

const MAX_WAITING = 1_000;

/** Opens the queue of those that ask this server for work. */
export function openTakers(
  context: Context,
  claims: Claims,
  { pollMs, leaseMs }: { pollMs: number; leaseMs: number },
): Takers {
  const queues = new Map<string, Set<Wake>>();
  const stopping = new AbortController();
  let waiting = 0;

  /** One at a time is woken; who finds something wakes the next. */
  function offered(agent: string): void {
    for (const wake of queues.get(agent) ?? []) return wake.wake();
  }

  return {
    offered,

    async claim(agent, { worker, max, waitMs, org }, signal) {
      if (stopping.signal.aborted)
        throw new KhalaError("shutting_down", "The server is shutting down. Ask again in a moment.", {
          retry_after_ms: 1_000,
        });
      if (waiting >= MAX_WAITING)
        throw new KhalaError("limit_exceeded", "Too many workers wait here already. Ask for more at once.", {
          retry_after_ms: 5_000,
        });
      const over = AbortSignal.any([signal, stopping.signal]);
      const deadline = context.clock.now() + waitMs;
      const wake = new Wake();
      const queue = queues.get(agent) ?? new Set();
      queues.set(agent, queue.add(wake));
      waiting++;
      try {
        for (;;) {
          const taken = await claims.take({ agent, worker, max, org });
          if (taken.length > 0 && signal.aborted) {
            // Nobody is there to hear of them.
            await claims.giveBack(taken.map(({ claimId }) => claimId));
            return [];
          }
          const left = deadline - context.clock.now();
          if (taken.length > 0 || left <= 0 || over.aborted)
            return taken.map(({ claimId, task, work }) => ({
              claim_id: claimId,
              task,
              idempotency_key: work,
              lease_ms: leaseMs,
            }));
          await wake.wait(context, Math.min(left, pollMs), over);
        }
      } finally {
        waiting--;
        queue.delete(wake);
        if (queue.size === 0) queues.delete(agent);
        offered(agent);
      }
    },

    stop: () => stopping.abort(),
  };
}
