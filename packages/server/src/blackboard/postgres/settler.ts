import { isItemFault, isRepeatable, isUncertain } from "../../database/database.ts";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { GroupCommit, type Outcome } from "../../kit/group_commit.ts";
import { type Artifact, conflict, sameContent, versionKey } from "../model/artifact.ts";
import type { DeadLetter, Settlement } from "../model/task.ts";
import {
  type BoardParts,
  isDuplicate,
  isLostClaim,
  knownArtifacts,
  route,
  tellOfArtifacts,
  waitBeforeRepeat,
} from "./board_parts.ts";
import { BY_INDEX, type Claim, heldStatement, type Settling, settleStatement, TASKS } from "./statements.ts";

/** A claim whose work has ended, and what becomes of it. */
export interface Finished {
  readonly claim: Claim;
  readonly settlement: Settlement;
}

const TRIES = 10;
const SETTLED: Outcome = { ok: true };
const LOST: Outcome = { ok: false };

/** Settles the tasks of all agents of this process. Those that end at the same time share a statement. */
export class Settler {
  readonly #parts: BoardParts;
  readonly #holder: string;
  readonly #calls: GroupCommit<readonly Finished[], readonly Outcome[]>;

  constructor(parts: BoardParts, holder: string) {
    this.#parts = parts;
    this.#holder = holder;
    this.#calls = new GroupCommit({
      commit: async (calls) => {
        const outcomes = await this.#commit(calls.flat(), TRIES);
        let until = 0;
        return calls.map(({ length }) => {
          until += length;
          return { ok: outcomes.slice(until - length, until) };
        });
      },
      sizeOf: (items) => items.reduce((sum, { settlement }) => sum + sizeOf(settlement), 0),
      countOf: ({ length }) => length,
      maxItems: 512,
      maxBytes: 8 << 20,
      // It is bounded by what the process has claimed; work that is done must not be refused.
      maxWaitingBytes: Number.MAX_SAFE_INTEGER,
    });
  }

  /** Answers of each whether it was settled: false if the claim was lost, an error if that is not known. */
  settle(items: readonly Finished[]): Promise<readonly Outcome[]> {
    return this.#calls.write(items);
  }

  /** Makes a dead letter of a claim without its artifact, which nobody can work on. */
  async park(claim: Claim): Promise<void> {
    const { id, agent, attempt } = claim.task;
    const failure = {
      class: "ArtifactMissing",
      message: `The artifact of task ${id} is no longer on the board. Publish it again if you still need it.`,
      kind: "fatal",
    } as const;
    const { task: _, ...letter } = { ...this.#letter(claim, failure), attempts: attempt - 1 };
    await this.#write({
      ended: [claim],
      retries: [],
      letters: [{ letter, claim, taskId: id, org: claim.org, correlation: undefined }],
      outputs: [],
    });
    this.#parts.context.log.error(
      { agent, task: id },
      "the artifact of a task is missing: the task is a dead letter",
    );
  }

  drain(): Promise<void> {
    return this.#calls.drain();
  }

  async #commit(items: readonly Finished[], tries: number): Promise<Outcome[]> {
    if (items.length === 0) return [];
    try {
      const lost = await this.#write(this.#settling(items));
      const settled = lost.size === 0 ? items : items.filter(({ claim }) => !lost.has(claim.seq));
      this.#observe(settled);
      return items.map(({ claim }) => (lost.has(claim.seq) ? LOST : SETTLED));
    } catch (error) {
      if (isUncertain(error)) return items.map(() => ({ error }));
      if (tries > 1 && isLostClaim(error)) return this.#withoutLost(items, tries - 1);
      if (tries > 1 && isDuplicate(error)) return this.#withoutKnown(items, tries - 1);
      if (isRepeatable(error)) {
        // No task causes it, however often it happens: the settler tries again.
        if (tries <= 1) return items.map(() => ({ error }));
        await waitBeforeRepeat(this.#parts.context, TRIES - tries);
        return this.#commit(items, tries - 1);
      }
      // Nobody's fault, such as a timeout: to halve the batch would multiply it.
      if (!isItemFault(error) && !isLostClaim(error)) return items.map(() => ({ error }));
      if (items.length === 1) return this.#unfit(items[0]!, error);
      const half = items.length >> 1;
      const first = await this.#commit(items.slice(0, half), TRIES);
      return [...first, ...(await this.#commit(items.slice(half), TRIES))];
    }
  }

  /** Answers the numbers of the claims that are not this process's any more. */
  async #write(settling: Settling): Promise<ReadonlySet<bigint>> {
    const { database, context, lanes, created } = this.#parts;
    const rows = await database.query<{ lost: bigint; promoted: string }>(
      settleStatement(this.#holder, settling, { lanes, now: context.clock.now() }),
    );
    if (settling.outputs.length > 0) tellOfArtifacts(this.#parts, settling.outputs);
    const lost = new Set<bigint>();
    const promoted = new Set<string>();
    for (const row of rows) {
      if (row.lost !== null) lost.add(row.lost);
      else promoted.add(row.promoted);
    }
    if (promoted.size > 0) created(promoted, promoted.size);
    return lost;
  }

  #settling(items: readonly Finished[]): Settling {
    const { options, lanes } = this.#parts;
    const ended: Claim[] = [];
    const retries: Settling["retries"][number][] = [];
    const letters: Settling["letters"][number][] = [];
    for (const { claim, settlement } of items) {
      if (settlement.kind === "retry") {
        const leaves = !lanes.isStrict(claim.task.agent);
        const { delayMs, uncounted = false } = settlement;
        retries.push({ claim, delayMs, leaves, uncounted });
        continue;
      }
      ended.push(claim);
      if (settlement.kind === "done") continue;
      const { id: taskId, artifacts } = claim.task;
      const [{ org_id: org, correlation_id: correlation }] = artifacts;
      const letter = this.#letter(claim, settlement.failure);
      letters.push({ letter, claim, taskId, org, correlation });
    }
    return { ended, retries, letters, outputs: route(options, outputsOf(items)) };
  }

  #letter({ seq, task }: Claim, failure: DeadLetter["failure"]): DeadLetter {
    const { clock, newId } = this.#parts.context;
    return {
      id: newId(),
      agent: task.agent,
      task,
      failure,
      attempts: task.attempt,
      failed_at: new Date(clock.now()).toISOString(),
      origin: `${TASKS}/0@${seq}`,
    };
  }

  #observe(settled: readonly Finished[]): void {
    const { observer } = this.#parts.options;
    for (const { claim, settlement } of settled)
      observer.settled(claim.task, settlement, { topic: TASKS, partition: 0, offset: String(claim.seq) });
  }

  /** Another process holds some of the claims now: the others are settled without them. */
  async #withoutLost(items: readonly Finished[], tries: number): Promise<Outcome[]> {
    const claims = items.map(({ claim }) => claim);
    const [, rows] = await this.#parts.database.transaction([BY_INDEX, heldStatement(this.#holder, claims)]);
    const held = new Set(rows!.map(({ seq }) => seq as bigint));
    const mine = items.filter(({ claim }) => held.has(claim.seq));
    const outcomes = await this.#commit(mine, tries);
    return items.map((item) => outcomes[mine.indexOf(item)] ?? LOST);
  }

  /** Some outputs are on the board: those that say the same need not be published again. */
  async #withoutKnown(items: readonly Finished[], tries: number): Promise<Outcome[]> {
    const known = await knownArtifacts(this.#parts.database, items.flatMap(outputsIn));
    const rest = items.map((item): Finished => {
      if (item.settlement.kind !== "done") return item;
      const outputs: Artifact[] = [];
      for (const output of item.settlement.outputs) {
        const there = known.get(versionKey(output));
        if (!there) outputs.push(output);
        else if (!sameContent(output, there)) return dead(item, conflict(output));
      }
      return { ...item, settlement: { ...item.settlement, outputs } };
    });
    return this.#commit(rest, tries);
  }

  /** An outcome that cannot be stored must not make its task run for ever. */
  async #unfit(item: Finished, error: unknown): Promise<Outcome[]> {
    if (outputsIn(item).length === 0) return [{ error }];
    return this.#commit([dead(item, error as Error)], 1);
  }
}

function sizeOf(settlement: Settlement): number {
  return settlement.kind === "done" ? 200 + settlement.outputs.length * 2_000 : 2_000;
}

function outputsIn({ settlement }: Finished): readonly Artifact[] {
  return settlement.kind === "done" ? settlement.outputs : [];
}

/** The outputs of all of them. What two tasks published alike is published once. */
function outputsOf(items: readonly Finished[]): Artifact[] {
  const outputs = new Map<string, Artifact>();
  for (const item of items)
    for (const artifact of outputsIn(item)) {
      const key = versionKey(artifact);
      const before = outputs.get(key);
      // The settlements are halved until they are apart; a task that contradicts itself becomes a dead letter.
      if (before && !sameContent(before, artifact)) throw conflict(artifact);
      if (!before) outputs.set(key, artifact);
    }
  return [...outputs.values()];
}

function dead({ claim }: Finished, error: Error): Finished {
  const failure = { class: error.name, message: error.message, kind: "fatal" } as const;
  return { claim, settlement: { kind: "dead", failure } };
}

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
