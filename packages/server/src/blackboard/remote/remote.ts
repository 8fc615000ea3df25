import { KhalaError } from "@khala/contracts";
import type { ClaimJson } from "@khala/contracts/blackboard/v1";
import { may, notFound, orgOf } from "../../access/access.ts";
import type { Database } from "../../database/database.ts";
import type { Wakeups } from "../../database/wakeups.ts";
import type { Context } from "../../kit/context.ts";
import { openConcurrencyQuota } from "../../kit/quota.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Agent } from "../model/agent.ts";
import type { ArtifactDraft } from "../model/artifact.ts";
import { conversationOf, type Settlement, type Task } from "../model/task.ts";
import type { PostToConversation } from "../options.ts";
import type { BlackboardPlane, Caller, ClaimAsk } from "../plane.ts";
import { type Claims, type Offered, openClaims } from "./claims.ts";
import { openHeldTasks, settlementText } from "./held_tasks.ts";

/** Options of remote work. Times are milliseconds. */
export interface RemoteOptions {
  /** Agents without `run`, whose tasks workers claim. */
  readonly agents: readonly Pick<Agent, "name" | "timeoutMs" | "concurrency">[];
  readonly wakeups: Pick<Wakeups, "send">;
  /** How long a worker keeps a task without a heartbeat. */
  readonly leaseMs: number;
  /** The polling interval, in case a wake-up was lost. */
  readonly pollMs?: number;
  readonly postToConversation?: PostToConversation | undefined;
  /** How long a settle request waits for the board's answer. */
  readonly outcomeMs?: number;
}

/** Work done by workers outside of this server. */
export interface Remote extends Service {
  /**
   * Offers a task to workers and waits for its outcome, however long no worker claims it: the agent's timeout starts at the
   * claim. Throws the worker's failure as a local agent would. If the signal aborts, it rejects: the worker of a cancelled
   * task is cancelled, that of a task that moves to another server continues there.
   */
  work(task: Task, signal: AbortSignal): Promise<readonly ArtifactDraft[]>;
  /** The tasks that no worker has claimed, on all servers; of all orgs if none are given. */
  offered(orgs?: readonly string[]): Promise<readonly Offered[]>;
  /** Answers the requests that wait for this task's settlement. */
  settled(task: Task, settlement: Settlement): void;
  readonly claim: BlackboardPlane["claim"];
  readonly heartbeat: BlackboardPlane["heartbeat"];
  readonly settle: BlackboardPlane["settle"];
  readonly post: BlackboardPlane["post"];
  /** Handles a wake-up of another server. Returns whether it was for remote work. */
  onWakeup(name: string): boolean;
  /** Called before the tasks are requeued: workers continue, and the next holder takes their claims over. */
  drain(): Promise<void>;
}

const OFFER_WAKEUP = "board:offer:";
const CLAIM_WAKEUP = "board:claim:";
const OFFER_MS = 30_000;
const KEPT_MS = 24 * 3_600_000;
const SWEEP_EVERY_MS = 600_000;
const SWEPT_AT_ONCE = 1_000;

/**
 * Opens remote work. The server that holds a task offers it in Postgres; claims, heartbeats and
 * settlements may reach any server, and the holder applies them.
 */
export function openRemote(database: Database, context: Context, options: RemoteOptions): Remote {
  const { wakeups, leaseMs, pollMs = 1_000, outcomeMs = 10_000 } = options;
  const agents = new Map(options.agents.map((agent) => [agent.name, agent]));
  const claims = openClaims(database, { server: context.newId(), leaseMs, offerMs: OFFER_MS });
  const stopping = new AbortController();
  const wake = new Wake();
  const claimQueue = openClaimQueue(context, claims, { pollMs, leaseMs });
  const held = openHeldTasks(context, claims, {
    timeoutOf: (agent) => agents.get(agent)?.timeoutMs ?? 300_000,
    placesOf: (agent) => agents.get(agent)?.concurrency ?? 1,
    offered(agent) {
      claimQueue.offered(agent);
      wakeups.send(`${OFFER_WAKEUP}${agent}`);
      wake.wake();
    },
    outcomeStored(claimId) {
      wakeWaiting(claimId);
      wakeups.send(`${CLAIM_WAKEUP}${claimId}`);
    },
  });
  /** Requests that wait for the board to settle a task. */
  const waiting = new Map<string, Set<Wake>>();
  let sweptAt = context.clock.now();

  const loop = runLoop(context, "remote work", {
    wake,
    idleMs: pollMs,
    async step() {
      await held.poll();
      const now = context.clock.now();
      if (now - sweptAt < SWEEP_EVERY_MS) return false;
      sweptAt = now;
      const more = await claims.sweep(KEPT_MS, SWEPT_AT_ONCE);
      if (more) sweptAt = 0;
      return more;
    },
  });

  function wakeWaiting(claimId: string): void {
    for (const waiter of waiting.get(claimId) ?? []) waiter.wake();
  }

  /** The claim, if the caller works for its agent in its org. */
  async function find(caller: Caller, claimId: string) {
    const found = await claims.find(claimId);
    if (found && may(caller, "task.work", found)) return found;
    throw notFound("claim", claimId);
  }

  /** Waits until the board has settled the task. */
  async function outcomeOf(caller: Caller, claimId: string): Promise<string> {
    const waiter = new Wake();
    const waiters = waiting.get(claimId) ?? new Set();
    waiting.set(claimId, waiters.add(waiter));
    const deadline = context.clock.now() + outcomeMs;
    try {
      for (;;) {
        const { outcome } = await find(caller, claimId);
        if (outcome) return outcome;
        const left = deadline - context.clock.now();
        if (left <= 0 || stopping.signal.aborted) break;
        await waiter.wait(context, Math.min(left, pollMs), stopping.signal);
      }
    } finally {
      waiters.delete(waiter);
      if (waiters.size === 0) waiting.delete(claimId);
    }
    const message = "The settlement is stored but not applied yet. Send it again to get its outcome.";
    throw new KhalaError("unavailable", message, { retry_after_ms: 1_000 });
  }

  return {
    work: held.work,
    settled: held.settled,
    offered: async (orgs) => (agents.size > 0 ? claims.offered([...agents.keys()], orgs) : []),

    async claim(caller, agent, ask, signal) {
      if (!agents.has(agent)) {
        const message = `There is no agent "${agent}" for remote workers. Agents with a \`run\` function run on the server.`;
        throw new KhalaError("not_found", message);
      }
      return claimQueue.claim(agent, { ...ask, org: orgOf(caller, "task.work") }, signal);
    },

    async heartbeat(caller, claimId) {
      await find(caller, claimId);
      if (await claims.heartbeat(claimId)) return { lease_ms: leaseMs, cancelled: false };
      const { state } = await find(caller, claimId);
      if (state === "withdrawn") return { lease_ms: 0, cancelled: true };
      // A heartbeat after the settlement is accepted.
      if (state !== "lost") return { lease_ms: leaseMs, cancelled: false };
      throw lost(claimId);
    },

    async post(caller, claimId, events) {
      const { org, agent } = await find(caller, claimId);
      const { postToConversation } = options;
      const task = await claims.claimed(claimId);
      if (!task) throw lost(claimId);
      const conversation = conversationOf(task);
      if (conversation && postToConversation) return postToConversation({ org, agent, conversation }, events);
      const message = "The task belongs to no conversation: its artifact does not come from a run.";
      throw new KhalaError("invalid_request", message);
    },

    async settle(caller, claimId, settlement) {
      await find(caller, claimId);
      const text = settlementText(settlement);
      if (await claims.settle(claimId, text, settlement.failure !== undefined)) {
        wake.wake();
        wakeups.send(`${CLAIM_WAKEUP}${claimId}`);
      } else if ((await find(caller, claimId)).settlement !== text) {
        throw lost(claimId);
      }
      return { status: await outcomeOf(caller, claimId) };
    },

    onWakeup(name) {
      if (name.startsWith(OFFER_WAKEUP)) {
        claimQueue.offered(name.slice(OFFER_WAKEUP.length));
        return true;
      }
      if (!name.startsWith(CLAIM_WAKEUP)) return false;
      const claimId = name.slice(CLAIM_WAKEUP.length);
      wakeWaiting(claimId);
      if (held.has(claimId)) wake.wake();
      return true;
    },

    async drain() {
      claimQueue.stop();
      await held.drain();
    },

    async stop() {
      stopping.abort();
      claimQueue.stop();
      await loop.stop();
      await held.stop();
    },
  };
}

function lost(claimId: string): KhalaError {
  const message = `The claim "${claimId}" is no longer yours: its lease expired, or it was settled with another outcome. Drop the work and claim again.`;
  return new KhalaError("lease_lost", message);
}

/** Workers that wait for a task. */
export interface ClaimQueue {
  /** Of every org if none is given. */
  claim(
    agent: string,
    ask: ClaimAsk & { readonly org: string | undefined },
    signal: AbortSignal,
  ): Promise<ClaimJson[]>;
  /** A task may be available. */
  offered(agent: string): void;
  /** Ends all waiting requests with an empty list. */
  stop(): void;
}

/** Requests of an org that wait at this server. */
const MAX_WAITING = 1_000;

/** Opens the queue of claim requests at this server. */
function openClaimQueue(
  context: Context,
  claims: Claims,
  { pollMs, leaseMs }: { pollMs: number; leaseMs: number },
): ClaimQueue {
  /** By agent, then by org: whose task it is only the database knows. Undefined for workers of all orgs. */
  const queues = new Map<string, Map<string | undefined, Set<Wake>>>();
  const stopping = new AbortController();
  const quota = openConcurrencyQuota(context, {
    name: "board_claims",
    of: "waiting claims on this server",
    limit: MAX_WAITING,
  });

  /** Wakes one request of each org at a time; a request that finds a task wakes the next. */
  function offered(agent: string): void {
    for (const queue of queues.get(agent)?.values() ?? [])
      for (const wake of queue) {
        wake.wake();
        break;
      }
  }

  return {
    offered,

    async claim(agent, { worker, max, waitMs, org }, signal) {
      if (stopping.signal.aborted)
        throw new KhalaError("shutting_down", "The server is shutting down. Ask again in a moment.", {
          retry_after_ms: 1_000,
        });
      const release = quota.acquire(org ?? "");
      const over = AbortSignal.any([signal, stopping.signal]);
      const deadline = context.clock.now() + waitMs;
      const wake = new Wake();
      const orgs = queues.get(agent) ?? new Map<string | undefined, Set<Wake>>();
      queues.set(agent, orgs);
      const queue = orgs.get(org) ?? new Set();
      orgs.set(org, queue.add(wake));
      try {
        for (;;) {
          const taken = await claims.take({ agent, worker, max, org });
          if (taken.length > 0 && signal.aborted) {
            // The client disconnected, so the claims are released.
            await claims.release(taken.map(({ claimId }) => claimId));
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
        release();
        queue.delete(wake);
        if (queue.size === 0) orgs.delete(org);
        if (orgs.size === 0) queues.delete(agent);
        offered(agent);
      }
    },

    stop: () => stopping.abort(),
  };
}
