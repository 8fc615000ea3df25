import { KhalaError } from "@khala/contracts";
import { isConnectionFailure, type Row, type Statement } from "../../database/database.ts";
import { GroupCommit, type Outcome } from "../../kit/group_commit.ts";
import type { Routed } from "../board.ts";
import { type Artifact, conflict, sameContent, versionKey } from "../model/artifact.ts";
import type { DeadLetter, Settlement } from "../model/task.ts";
import {
  type Bundled,
  lockBundlesStatements,
  settleBundlesStatement,
  unbundleStatements,
} from "./bundles.ts";
import type { Claimed, Finished as Item } from "./claimed.ts";
import { type ClaimRow, claimedOf } from "./claims.ts";
import type { NextOffer, Offer } from "./handover.ts";
import { heldOf } from "./held.ts";
import { codeOf, isRepeatable, isTaken, knownOf, stepAside } from "./known.ts";
import { type Desk, routed, tellOfArtifacts } from "./publish.ts";
import { type Settling, settleStatement } from "./settling.ts";
import { putting, QUEUE } from "./statements.ts";

const TRIES = 10;
const LOST = "KB001";

/** Settles the tasks of all agents of this process; those that end at the same time share a commit. */
export class Settler {
  readonly #desk: Desk;
  readonly #holder: string;
  readonly #calls: GroupCommit<readonly Item[], readonly Outcome[]>;

  constructor(desk: Desk, holder: string) {
    this.#desk = desk;
    this.#holder = holder;
    this.#calls = new GroupCommit({
      commit: async (calls) => {
        const outcomes = await this.#commit(calls.length === 1 ? calls[0]! : calls.flat(), TRIES);
        let until = 0;
        return calls.map(({ length }) => {
          until += length;
          return { ok: outcomes.slice(until - length, until) };
        });
      },
      sizeOf: sizeOfAll,
      countOf: ({ length }) => length,
      maxItems: 512,
      maxBytes: 8 << 20,
      // It is bounded by what the process has claimed; work that is done must not be refused.
      maxWaitingBytes: Number.MAX_SAFE_INTEGER,
    });
  }

  /** Of each whether it was settled: false if the claim was lost, and nothing was written; an error if that is not known. */
  settle(items: readonly Item[]): Promise<readonly Outcome[]> {
    return this.#calls.write(items);
  }

  drain(): Promise<void> {
    return this.#calls.drain();
  }

  async #commit(items: readonly Item[], tries: number): Promise<Outcome[]> {
    if (items.length === 0) return [];
    try {
      const { lost, left } = await this.#write(sorted(items));
      const outcomes: Outcome[] = new Array(items.length).fill(SETTLED);
      if (lost.size === 0 && left.length === 0) return outcomes;
      items.forEach((item, i) => {
        if (lost.has(item)) outcomes[i] = LOST_CLAIM;
      });
      const again = await this.#commit(left.map(alone), tries);
      left.forEach((item, i) => {
        outcomes[items.indexOf(item)] = again[i]!;
      });
      return outcomes;
    } catch (error) {
      if (error instanceof KhalaError && isConnectionFailure(error.cause))
        return items.map(() => ({ error }));
      if (tries > 1 && codeOf(error) === LOST) return this.#withoutLost(items, tries - 1);
      if (tries > 1 && isTaken(error)) return this.#withoutKnown(items, tries - 1);
      if (isRepeatable(error)) {
        // It is nobody's fault, however often it happens: who settles tries again.
        if (tries <= 1) return items.map(() => ({ error }));
        await stepAside(this.#desk.context, TRIES - tries);
        return this.#commit(items, tries - 1);
      }
      if (items.length === 1) return this.#unfit(items[0]!, error);
      const half = items.length >> 1;
      const first = await this.#commit(items.slice(0, half), TRIES);
      return [...first, ...(await this.#commit(items.slice(half), TRIES))];
    }
  }

  /** Answers those that are not this process's any more, and those that have left their bundle: they were not settled. */
  async #write(items: readonly Item[]): Promise<{ lost: Set<Item>; left: Item[] }> {
    const { database, options, lanes, arrivals, handover } = this.#desk;
    const outputs = this.#outputsOf(items);
    const routings: Routed[] = outputs.map((artifact) => ({ artifact, routing: routed(options, artifact) }));
    const together = items.filter(isTogether);
    const rows = together.length === items.length ? [] : items.filter(isAlone);
    const settling = rows.map((item) => this.#settling(item));
    const queued = arrivals.without(routings);
    const taking = await handover.offer(queued);
    const next = await handover.offerNext(settling);
    try {
      const every = outputs.length > 0;
      const first =
        together.length > 0 ? [settleBundlesStatement(this.#holder, together.map(claimOf), every)] : [];
      const second =
        rows.length > 0
          ? [
              ...unbundleStatements(this.#holder, rows.map(claimOf)),
              settleStatement(settling, next.taking, queued, lanes),
            ]
          : [];
      const third = every ? this.#putting(routings, queued, taking) : undefined;
      const isMixed = first.length > 0 && second.length > 1;
      const locks = isMixed ? lockBundlesStatements(this.#holder, items.map(claimOf)) : [];
      const all = await database.transaction([...locks, ...first, ...second, ...(third?.statements ?? [])]);
      const results = all.slice(locks.length);
      const at = first.length + second.length;
      if (third) {
        const put = results[at]!;
        tellOfArtifacts(this.#desk, routings, put, taking.taken(third.packed, put));
      }
      const left = first.length > 0 ? among(together, results[0]!) : [];
      const lost = this.#tell(rows, second.length > 0 ? results[at - 1]! : [], next);
      const others = new Set([...lost, ...left]);
      this.#observe(others.size === 0 ? items : items.filter((item) => !others.has(item)));
      return { lost, left };
    } finally {
      next.end();
      taking.end();
    }
  }

  #putting(
    routings: readonly Routed[],
    queued: readonly Routed[],
    taking: Offer,
  ): { statements: Statement[]; packed: Bundled } {
    const { context, options, lanes, arrivals, fewest } = this.#desk;
    const bodies = routings.map(({ artifact }) => JSON.stringify(artifact));
    const now = context.clock.now();
    const how = { routes: options.routes, lanes, arrivals, now, fewest, ...taking.statement };
    const { statement, packed } = putting(routings, queued, bodies, how);
    return { statements: [statement, ...arrivals.statements(routings, bodies, now)], packed };
  }

  /** Tells of who came forward, and answers those that are not this process's any more. */
  #tell(items: readonly Item[], rows: readonly Row[], next: NextOffer): Set<Item> {
    const lost = new Set<Item>();
    const forward = new Set<string>();
    for (const row of rows) {
      if (row.n !== null) lost.add(items[(row.n as number) - 1]!);
      else if (!row.claimed) forward.add(row.promoted as string);
      else {
        const agent = row.promoted as string;
        const claim = claimedOf(agent, row as ClaimRow);
        if (claim) next.accept(claim);
        else this.#desk.missing(agent, row as ClaimRow);
      }
    }
    if (forward.size > 0) this.#desk.cameForward(forward);
    return lost;
  }

  #observe(settled: readonly Item[]): void {
    const { observer } = this.#desk.options;
    for (const { claim, settlement } of settled) {
      const place = { topic: QUEUE, partition: 0, offset: String(claim.seq) };
      observer.settled(claim.task, settlement, place);
    }
  }

  /** The outputs of all of them. What two tasks published alike is published once. */
  #outputsOf(items: readonly Item[]): Artifact[] {
    if (!hasOutputs(items)) return [];
    const outputs = new Map<string, Artifact>();
    for (const { settlement } of items) {
      if (settlement.kind !== "done") continue;
      for (const artifact of settlement.outputs) {
        const key = versionKey(artifact);
        const before = outputs.get(key);
        if (before && !sameContent(before, artifact)) {
          // The batch is halved until they are apart; a task alone that contradicts itself is a dead letter.
          throw conflict(artifact);
        }
        if (!before) outputs.set(key, artifact);
      }
    }
    return [...outputs.values()];
  }

  #settling({ claim, settlement }: Item): Settling {
    const { task } = claim;
    const { kind } = settlement;
    if (kind === "done") return { claim, kind, delayMs: 0, leaves: true };
    if (kind === "dead")
      return { claim, kind, delayMs: 0, leaves: true, letter: this.#letter(claim, settlement.failure) };
    const strict = this.#desk.options.agents.find(({ agent }) => agent === task.agent)?.strict ?? false;
    return { claim, kind, delayMs: settlement.delayMs, leaves: !strict };
  }

  #letter({ seq, task }: Claimed, failure: DeadLetter["failure"]): DeadLetter {
    const { clock, newId } = this.#desk.context;
    return {
      id: newId(),
      agent: task.agent,
      task,
      failure,
      attempts: task.attempt,
      failed_at: new Date(clock.now()).toISOString(),
      origin: `${QUEUE}/0@${seq}`,
    };
  }

  async #withoutLost(items: readonly Item[], tries: number): Promise<Outcome[]> {
    const { mine, bundled } = await heldOf(
      this.#desk.database,
      this.#holder,
      items.map(({ claim }) => claim),
    );
    const outcomes: Outcome[] = items.map(() => ({ ok: false }));
    const at = items.flatMap(({ claim }, i) => (mine.has(claim.seq) || bundled.has(claim.seq) ? [i] : []));
    const rest = await this.#commit(
      at.map((i) => (bundled.has(items[i]!.claim.seq) ? items[i]! : alone(items[i]!))),
      tries,
    );
    at.forEach((i, k) => {
      outcomes[i] = rest[k]!;
    });
    return outcomes;
  }

  /** Some outputs are on the board: those that say the same need not be said again. */
  async #withoutKnown(items: readonly Item[], tries: number): Promise<Outcome[]> {
    const outputsOf = ({ settlement }: Item) => (settlement.kind === "done" ? settlement.outputs : []);
    const known = await knownOf(this.#desk.database, items.flatMap(outputsOf));
    const rest = items.map((item): Item => {
      const outputs = outputsOf(item).filter((artifact) => {
        const there = known.get(versionKey(artifact));
        return !there || !sameContent(there, artifact);
      });
      const other = outputs.find((artifact) => known.has(versionKey(artifact)));
      if (other) return dead(item, conflict(other));
      return item.settlement.kind === "done"
        ? { claim: item.claim, settlement: { kind: "done", outputs } }
        : item;
    });
    return this.#commit(rest, tries);
  }

  /** What cannot be stored, however often it is tried, must not run for ever. */
  async #unfit(item: Item, error: unknown): Promise<Outcome[]> {
    if (item.settlement.kind !== "done" || item.settlement.outputs.length === 0) return [{ error }];
    return this.#commit([dead(item, error as Error)], 1);
  }
}

const SETTLED: Outcome = { ok: true };
const LOST_CLAIM: Outcome = { ok: false };

function sizeOf(settlement: Settlement): number {
  return settlement.kind === "done" ? 200 + settlement.outputs.length * 2_000 : 2_000;
}

// What is done for every task is written as loops and functions of the module: a function that is made for each call has to
// be optimized anew after every collection of the whole heap.

function sizeOfAll(items: readonly Item[]): number {
  let size = 0;
  for (const { settlement } of items) size += sizeOf(settlement);
  return size;
}

function hasOutputs(items: readonly Item[]): boolean {
  for (const { settlement } of items)
    if (settlement.kind === "done" && settlement.outputs.length > 0) return true;
  return false;
}

/** In the order in which all lock them; most come so. */
function sorted(items: readonly Item[]): readonly Item[] {
  for (let i = 1; i < items.length; i++)
    if (inOrder(items[i - 1]!.claim, items[i]!.claim) > 0)
      return items.toSorted((a, b) => inOrder(a.claim, b.claim));
  return items;
}

function isTogether({ claim, settlement }: Item): boolean {
  return claim.bundle !== undefined && settlement.kind === "done";
}

const isAlone = (item: Item) => !isTogether(item);

/** Those whose numbers are in these rows. */
function among(items: readonly Item[], rows: readonly Row[]): Item[] {
  if (rows.length === 0) return [];
  const seqs = new Set(rows.map(({ seq }) => seq as bigint));
  return items.filter(({ claim }) => seqs.has(claim.seq));
}

const claimOf = ({ claim }: Item) => claim;

/** As if it had come in no bundle. */
function alone({ claim: { seq, lane, task }, settlement }: Item): Item {
  return { claim: { seq, lane, task }, settlement };
}

function dead({ claim }: Item, error: Error): Item {
  const failure = { class: error.name, message: error.message, kind: "fatal" } as const;
  return { claim, settlement: { kind: "dead", failure } };
}

function inOrder(a: Claimed, b: Claimed): number {
  if (a.task.agent !== b.task.agent) return a.task.agent < b.task.agent ? -1 : 1;
  if (a.lane !== b.lane) return (a.lane ?? "") < (b.lane ?? "") ? -1 : 1;
  if (a.bundle !== undefined && a.bundle === b.bundle) return a.at! - b.at!;
  return a.seq < b.seq ? -1 : 1;
}
