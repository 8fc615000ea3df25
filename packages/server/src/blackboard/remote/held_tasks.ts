import { canonicalJson } from "@khala/contracts";
import type { FailureJson, SettleRequestJson } from "@khala/contracts/blackboard/v1";
import type { Context } from "../../kit/context.ts";
import type { ArtifactDraft } from "../model/artifact.ts";
import { FatalError, RateLimitedError, RetryableError } from "../model/errors.ts";
import { idempotencyKey, type Settlement, type Task } from "../model/task.ts";
import { Cancelled } from "../work/cancellation.ts";
import type { Claims, HeldClaim } from "./claims.ts";

/** Tasks that this server holds while workers have them or may claim them. */
export interface HeldTasks {
  work(task: Task, signal: AbortSignal): Promise<readonly ArtifactDraft[]>;
  settled(task: Task, settlement: Settlement): void;
  has(claimId: string): boolean;
  /** Applies the changes of their claims. */
  poll(): Promise<void>;
  /** Leaves open claims to the next holder of the tasks; only the offers are closed. */
  drain(): Promise<void>;
  stop(): Promise<void>;
}

interface Held {
  readonly task: Task;
  readonly resolve: (outputs: readonly ArtifactDraft[]) => void;
  readonly reject: (error: unknown) => void;
  /** Leases that expired in this attempt. */
  losses: number;
  offeredAt: number;
}

/** Nobody claimed the task while others waited for its place: it is offered again after them. */
export class Unclaimed extends Error {
  override readonly name = "Unclaimed";
}

/** A task that kills its workers is not offered without limit. */
const MAX_LOSSES = 3;
/** The timeout of a settlement. */
const APPLIED_MS = 60_000;
const RENEW_EVERY_MS = 10_000;
/** How long an offer keeps its slot from waiting tasks, which may belong to an org with workers. */
const TURN_MS = 5_000;

/** Opens the remote work of this server. */
export function openHeldTasks(
  context: Context,
  claims: Claims,
  options: {
    timeoutOf(agent: string): number;
    /** The number of tasks of an agent that this server offers at a time. */
    placesOf(agent: string): number;
    /** Called when an offer is available. */
    offered(agent: string): void;
    /** Called when the outcome of a claim is stored. */
    outcomeStored(claimId: string): void;
  },
): HeldTasks {
  const held = new Map<string, Held>();
  /** Settlements passed to the board and not settled yet, by idempotency key. */
  const applied = new Map<string, { claimId: string; at: number }>();
  const writes = new Set<Promise<void>>();
  /** Writes in flight that open offers. */
  const opening = new Set<Promise<unknown>>();
  let draining = false;
  let renewedAt = context.clock.now();

  /** Runs a write in the background; shutdown waits for it. */
  function beside(what: string, write: Promise<void>): void {
    const done = write
      .catch((error) => context.log.warn({ err: (error as Error).message }, what))
      .finally(() => writes.delete(done));
    writes.add(done);
  }

  async function opens<T>(write: Promise<T>): Promise<T> {
    opening.add(write);
    try {
      return await write;
    } finally {
      opening.delete(write);
    }
  }

  async function offer(work: Held): Promise<void> {
    const claim = await opens(claims.offer(context.newId(), work.task, { closed: draining }));
    held.set(claim.claimId, work);
    work.offeredAt = context.clock.now();
    options.offered(work.task.agent);
  }

  function apply(claimId: string, work: Held, settlement: string): void {
    held.delete(claimId);
    applied.set(idempotencyKey(work.task), { claimId, at: context.clock.now() });
    try {
      work.resolve(settlementOutputs(settlement));
    } catch (error) {
      work.reject(error);
    }
  }

  async function advance(claimId: string, work: Held, claim: HeldClaim | undefined): Promise<void> {
    if (!claim || claim.state === "lost" || claim.state === "withdrawn") return again(claimId, work);
    // The board moved the task to another server, as the signal's reason says.
    if (claim.foreign) return void held.delete(claimId);
    if (claim.settlement !== null) return apply(claimId, work, claim.settlement);
    if (claim.state !== "claimed") return takeTurn(claimId, work);
    if (claim.ended && (await claims.end(claimId, "lost"))) {
      if (++work.losses < MAX_LOSSES) return again(claimId, work);
      held.delete(claimId);
      const message = `${MAX_LOSSES} workers let their leases end, the last of them ${JSON.stringify(claim.worker)}.`;
      return work.reject(new RetryableError(message));
    }
    const timeoutMs = options.timeoutOf(work.task.agent);
    if (claim.age === null || claim.age < timeoutMs || !(await claims.end(claimId, "withdrawn"))) return;
    held.delete(claimId);
    work.reject(
      new RetryableError(`The worker ${JSON.stringify(claim.worker)} took longer than ${timeoutMs} ms.`),
    );
  }

  /** Makes room for the next task when no place is left. */
  async function takeTurn(claimId: string, work: Held): Promise<void> {
    const { agent } = work.task;
    if (draining || context.clock.now() - work.offeredAt < TURN_MS) return;
    const offered = held.values().reduce((count, { task }) => count + (task.agent === agent ? 1 : 0), 0);
    if (offered < options.placesOf(agent) || !(await claims.end(claimId, "retracted"))) return;
    held.delete(claimId);
    work.reject(new Unclaimed("No worker has claimed the task yet. Khala will offer it again."));
  }

  async function again(claimId: string, work: Held): Promise<void> {
    if (held.get(claimId) !== work) return;
    held.delete(claimId);
    // An offer that cannot be written now is retried under the same key at the next poll.
    await offer(work).catch((error) => {
      held.set(claimId, work);
      throw error;
    });
  }

  return {
    async work(task, signal) {
      signal.throwIfAborted();
      const { promise, resolve, reject } = Promise.withResolvers<readonly ArtifactDraft[]>();
      const work: Held = { task, resolve, reject, losses: 0, offeredAt: context.clock.now() };
      // It may be aborted before it is awaited, and while the offer fails.
      promise.catch(() => {});
      const abort = () => reject(signal.reason);
      signal.addEventListener("abort", abort, { once: true });
      try {
        await offer(work);
        if (signal.aborted) abort();
        return await promise;
      } finally {
        signal.removeEventListener("abort", abort);
        for (const [claimId, other] of held) {
          if (other !== work) continue;
          held.delete(claimId);
          if (draining) continue;
          // A task that only moves to another server is still wanted: its worker continues, and only an unclaimed offer is retracted.
          const state = signal.reason instanceof Cancelled ? "withdrawn" : "retracted";
          beside(
            "could not retract a claim; its lease will expire",
            claims.end(claimId, state).then(() => {}),
          );
        }
      }
    },

    settled(task, { kind }) {
      if (applied.size === 0) return;
      const key = idempotencyKey(task);
      const entry = applied.get(key);
      if (!entry) return;
      applied.delete(key);
      beside(
        "could not store the outcome of a claim; its worker will ask again",
        claims.setOutcome(entry.claimId, kind).then(() => options.outcomeStored(entry.claimId)),
      );
    },

    has: (claimId) => held.has(claimId),

    async poll() {
      const now = context.clock.now();
      for (const [key, { at }] of applied) if (now - at > APPLIED_MS) applied.delete(key);
      if (held.size === 0) return;
      if (!draining && now - renewedAt >= RENEW_EVERY_MS) {
        renewedAt = now;
        await opens(claims.renew());
      }
      const works = [...held];
      const found = await claims.held(works.map(([claimId]) => claimId));
      const byId = new Map(found.map((claim) => [claim.claimId, claim]));
      const failures: unknown[] = [];
      for (const [claimId, work] of works) {
        // It may have ended during the query.
        if (held.get(claimId) !== work) continue;
        // One that cannot be advanced must not block the others.
        await advance(claimId, work, byId.get(claimId)).catch((error) => failures.push(error));
      }
      if (failures.length > 0) throw failures[0];
    },

    async drain() {
      draining = true;
      // A write after the offers were closed would open one again, so later offers are closed from the start.
      await Promise.allSettled(opening);
      await claims.lapse();
    },

    async stop() {
      draining = true;
      held.clear();
      while (writes.size > 0) await Promise.all(writes);
    },
  };
}

/** The canonical text of a settlement, as stored. */
export function settlementText({ outputs = [], failure, retry_after_ms }: SettleRequestJson): string {
  return canonicalJson({
    outputs,
    ...(failure && { failure }),
    ...(retry_after_ms !== undefined && { retry_after_ms }),
  });
}

/** The outputs of a settlement. A failure is thrown as a local agent would throw it. */
function settlementOutputs(settlement: string): readonly ArtifactDraft[] {
  const { outputs = [], failure, retry_after_ms = 0 } = JSON.parse(settlement) as SettleRequestJson;
  if (failure) throw errorOf(failure, retry_after_ms);
  return outputs;
}

function errorOf(failure: FailureJson, retryAfterMs: number): Error {
  const { kind, message = "", class: name = "Error", stack } = failure;
  const error =
    kind === "fatal"
      ? new FatalError(message)
      : kind === "rate_limited"
        ? new RateLimitedError(message, retryAfterMs)
        : new RetryableError(message);
  // The dead letter shows the worker's class and stack.
  Object.defineProperty(error, "name", { value: name });
  error.stack = stack ?? `${name}: ${message}`;
  return error;
}
