import { KhalaError } from "@khala/contracts";
import type {
  ClaimJson,
  HeartbeatResponseJson,
  SettleRequestJson,
  SettleResponseJson,
} from "@khala/contracts/blackboard/v1";
import type { Database } from "../../database/database.ts";
import type { Wakeups } from "../../database/wakeups.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Agent } from "../model/agent.ts";
import type { ArtifactDraft } from "../model/artifact.ts";
import type { Settlement, Task } from "../model/task.ts";
import type { ClaimAsk } from "../plane.ts";
import { openClaims } from "./remote_claims.ts";
import { openHeldWork } from "./remote_held.ts";
import { settlementText } from "./remote_settlement.ts";
import { openTakers } from "./remote_takers.ts";

/** How claims are kept. Times are milliseconds. */
export interface RemoteOptions {
  /** The agents whose work is claimed: those without `run`. */
  readonly agents: readonly Pick<Agent, "name" | "timeoutMs">[];
  readonly wakeups: Pick<Wakeups, "send">;
  /** How long a task is a worker's without a heartbeat. */
  readonly leaseMs: number;
  /** How often is looked for what a wakeup should have told. */
  readonly pollMs?: number;
  /** How long a settlement waits for what the board makes of it. */
  readonly outcomeMs?: number;
}

/** Work that is done by programs that are no part of this server. */
export interface Remote extends Service {
  /**
   * Offers a task to workers and waits for its end, however long nobody comes: the agent's timeout counts from the claim.
   * Throws what the worker reported, as an agent in this process would. When the signal aborts it rejects: the worker of a
   * task that was cancelled is told to stop, that of one that goes to another server is left to whoever gets it.
   */
  work(task: Task, signal: AbortSignal): Promise<readonly ArtifactDraft[]>;
  /** The board has settled a task: whoever waits for that is told. */
  settled(task: Task, settlement: Settlement): void;
  claim(agent: string, ask: ClaimAsk, signal: AbortSignal): Promise<ClaimJson[]>;
  heartbeat(claimId: string, org?: string): Promise<HeartbeatResponseJson>;
  settle(claimId: string, settlement: SettleRequestJson, org?: string): Promise<SettleResponseJson>;
  /** Another server tells of an offer or a claim. Answers whether the wakeup was meant for this. */
  onWakeup(name: string): boolean;
  /** Before the tasks are given back: what workers have goes on, and is taken over by whoever gets the tasks. */
  drain(): Promise<void>;
}

const OFFER_WAKEUP = "board:offer:";
const CLAIM_WAKEUP = "board:claim:";
const OFFER_MS = 30_000;
const KEPT_MS = 24 * 3_600_000;
const SWEEP_EVERY_MS = 600_000;
const SWEPT_AT_ONCE = 1_000;

/**
 * Opens the work of agents in other languages. The server that holds a task offers it in Postgres; claims, heartbeats and
 * settlements may reach any server, and the holder applies what they say.
 */
export function openRemote(database: Database, context: Context, options: RemoteOptions): Remote {
  const { wakeups, leaseMs, pollMs = 1_000, outcomeMs = 10_000 } = options;
  const agents = new Map(options.agents.map((agent) => [agent.name, agent]));
  const claims = openClaims(database, { server: context.newId(), leaseMs, offerMs: OFFER_MS });
  const stopping = new AbortController();
  const wake = new Wake();
  const takers = openTakers(context, claims, { pollMs, leaseMs });
  const held = openHeldWork(context, claims, {
    timeoutOf: (agent) => agents.get(agent)?.timeoutMs ?? 300_000,
    offered(agent) {
      takers.offered(agent);
      wakeups.send(`${OFFER_WAKEUP}${agent}`);
      wake.wake();
    },
    told(claimId) {
      tell(claimId);
      wakeups.send(`${CLAIM_WAKEUP}${claimId}`);
    },
  });
  /** Requests that wait for what the board makes of a settlement. */
  const waiting = new Map<string, Set<Wake>>();
  let sweptAt = context.clock.now();

  const loop = runLoop(context, "remote work", {
    wake,
    idleMs: pollMs,
    async step() {
      await held.look();
      const now = context.clock.now();
      if (now - sweptAt < SWEEP_EVERY_MS) return false;
      sweptAt = now;
      const more = await claims.sweep(KEPT_MS, SWEPT_AT_ONCE);
      if (more) sweptAt = 0;
      return more;
    },
  });

  function tell(claimId: string): void {
    for (const waiter of waiting.get(claimId) ?? []) waiter.wake();
  }

  async function find(claimId: string, org: string | undefined) {
    const found = await claims.find(claimId, org);
    if (found) return found;
    throw new KhalaError("not_found", `There is no claim "${claimId}". Claim a task to get one.`);
  }

  /** Waits until the board has settled the task. */
  async function outcomeOf(claimId: string, org: string | undefined): Promise<string> {
    const waiter = new Wake();
    const waiters = waiting.get(claimId) ?? new Set();
    waiting.set(claimId, waiters.add(waiter));
    const deadline = context.clock.now() + outcomeMs;
    try {
      for (;;) {
        const { outcome } = await find(claimId, org);
        if (outcome) return outcome;
        const left = deadline - context.clock.now();
        if (left <= 0 || stopping.signal.aborted) break;
        await waiter.wait(context, Math.min(left, pollMs), stopping.signal);
      }
    } finally {
      waiters.delete(waiter);
      if (waiters.size === 0) waiting.delete(claimId);
    }
    const message =
      "The settlement is kept, but not applied yet. Send the same one again to learn its outcome.";
    throw new KhalaError("unavailable", message, { retry_after_ms: 1_000 });
  }

  return {
    work: held.work,
    settled: held.settled,

    async claim(agent, ask, signal) {
      if (!agents.has(agent)) {
        const message = `There is no agent "${agent}" whose work is claimed: those with a \`run\` work by themselves.`;
        throw new KhalaError("not_found", message);
      }
      return takers.claim(agent, ask, signal);
    },

    async heartbeat(claimId, org) {
      if (await claims.heartbeat(claimId, org)) return { lease_ms: leaseMs, cancelled: false };
      const { state } = await find(claimId, org);
      if (state === "withdrawn") return { lease_ms: 0, cancelled: true };
      // A heartbeat that comes after the settlement has nothing to complain of.
      if (state !== "lost") return { lease_ms: leaseMs, cancelled: false };
      throw lost(claimId);
    },

    async settle(claimId, settlement, org) {
      const text = settlementText(settlement);
      if (await claims.settle(claimId, text, settlement.failure !== undefined, org)) {
        wake.wake();
        wakeups.send(`${CLAIM_WAKEUP}${claimId}`);
      } else if ((await find(claimId, org)).settlement !== text) {
        throw lost(claimId);
      }
      return { status: await outcomeOf(claimId, org) };
    },

    onWakeup(name) {
      if (name.startsWith(OFFER_WAKEUP)) {
        takers.offered(name.slice(OFFER_WAKEUP.length));
        return true;
      }
      if (!name.startsWith(CLAIM_WAKEUP)) return false;
      const claimId = name.slice(CLAIM_WAKEUP.length);
      tell(claimId);
      if (held.has(claimId)) wake.wake();
      return true;
    },

    async drain() {
      takers.stop();
      await held.drain();
    },

    async stop() {
      stopping.abort();
      takers.stop();
      await loop.stop();
      await held.stop();
    },
  };
}

function lost(claimId: string): KhalaError {
  const message = `The claim "${claimId}" is not yours any more: its lease ended, or it was settled otherwise. Drop the work and claim anew.`;
  return new KhalaError("lease_lost", message);
}
