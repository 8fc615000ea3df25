import { KhalaError } from "@khala/contracts";
import { type Database, isConnectionFailure } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { GroupCommit, type Outcome } from "../../kit/group_commit.ts";
import type { BoardOptions, Routed } from "../board.ts";
import { type Artifact, areAscending, conflict, sameContent, versionKey } from "../model/artifact.ts";
import type { Task } from "../model/task.ts";
import type { Arrivals } from "./arrivals.ts";
import type { MissingTask } from "./claims.ts";
import type { Handover } from "./handover.ts";
import { busy, isRepeatable, isTaken, knownOf, stepAside } from "./known.ts";
import type { Lanes } from "./lanes.ts";
import { enqueueStatement, putting } from "./statements.ts";

type Status = "published" | "duplicate";

interface Call {
  readonly artifacts: readonly Artifact[];
  /** What tells them from others. */
  readonly keys: readonly string[];
  readonly bodies: readonly string[];
  readonly bytes: number;
  /** Whether nothing orders what it leads to. */
  readonly isFree: boolean;
}

/** What publishing and settling share. */
export interface Desk {
  readonly database: Database;
  readonly context: Context;
  readonly options: BoardOptions;
  readonly lanes: Lanes;
  readonly arrivals: Arrivals;
  readonly handover: Handover;
  /** So many tasks share a row, if nothing orders them. */
  readonly fewest: number;
  /** Tasks of these agents can be claimed now: so many, if it is known that there are many. */
  created(agents: ReadonlySet<string>, tasks?: number): void;
  /** The same of tasks that had waited for others. */
  cameForward(agents: ReadonlySet<string>): void;
  /** A task was claimed of which the artifact is gone. */
  missing(agent: string, row: MissingTask): void;
  /** There are artifacts for the router. */
  unrouted(): void;
}

const TRIES = 10;
/** From here on artifacts are worth a commit beside one that is under way. */
const SECOND_BYTES = 32 << 10;

/** Publishes and enqueues; those who do so at the same time share a commit. */
export class Publisher {
  readonly #desk: Desk;
  readonly #calls: GroupCommit<Call, readonly Status[]>;

  constructor(desk: Desk) {
    this.#desk = desk;
    this.#calls = new GroupCommit({
      commit: (calls) => this.#commit(calls, TRIES),
      sizeOf: (call) => call.bytes,
      maxItems: 512,
      maxBytes: 8 << 20,
      maxWaitingBytes: 64 << 20,
      second: { fromBytes: SECOND_BYTES, isFree: ({ isFree }) => isFree },
    });
  }

  async publish(artifacts: readonly Artifact[]): Promise<readonly Status[]> {
    if (artifacts.length === 0) return [];
    const keys = artifacts.map(versionKey);
    if (areAscending(keys)) return this.#write(artifacts, keys);
    const first = new Map<string, Artifact>();
    const repeated = artifacts.map((artifact, i) => {
      const before = first.get(keys[i]!);
      if (!before) first.set(keys[i]!, artifact);
      else if (!sameContent(before, artifact)) throw conflict(artifact);
      return before !== undefined;
    });
    const statuses = await this.#write([...first.values()], [...first.keys()]);
    let next = 0;
    return repeated.map((again) => (again ? "duplicate" : statuses[next++]!));
  }

  #write(artifacts: readonly Artifact[], keys: readonly string[]): Promise<readonly Status[]> {
    const bodies = artifacts.map((artifact) => JSON.stringify(artifact));
    const bytes = bodies.reduce((sum, body) => sum + body.length + 200, 0);
    const isFree = artifacts.every(this.#desk.lanes.isFree);
    return this.#calls.write({ artifacts, keys, bodies, bytes, isFree });
  }

  async enqueue(tasks: readonly Task[]): Promise<void> {
    if (tasks.length === 0) return;
    const { database, context, options, lanes } = this.#desk;
    const statement = enqueueStatement(tasks, lanes, context.clock.now());
    for (let tries = TRIES; ; tries--) {
      try {
        const [rows] = await database.transaction([statement]);
        const fresh = new Set(rows!.map(({ n }) => n as number));
        this.#desk.created(new Set(tasks.filter((_, i) => fresh.has(i + 1)).map(({ agent }) => agent)));
        tasks.forEach((task, i) => {
          if (!fresh.has(i + 1)) options.observer.repeated(task);
        });
        return;
      } catch (error) {
        if (!isRepeatable(error)) throw error;
        if (tries <= 1) throw busy(error);
        await stepAside(this.#desk.context, TRIES - tries);
      }
    }
  }

  drain(): Promise<void> {
    return this.#calls.drain();
  }

  async #commit(calls: readonly Call[], tries: number): Promise<Outcome[]> {
    const { now, later } = apart(calls);
    if (later.length > 0) {
      const outcomes: Outcome[] = [];
      const first = await this.#commit(
        now.map((i) => calls[i]!),
        tries,
      );
      const second = await this.#commit(
        later.map((i) => calls[i]!),
        tries,
      );
      now.forEach((at, i) => {
        outcomes[at] = first[i]!;
      });
      later.forEach((at, i) => {
        outcomes[at] = second[i]!;
      });
      return outcomes;
    }
    try {
      await this.#put(calls);
      return calls.map(({ artifacts }) => ({ ok: artifacts.map((): Status => "published") }));
    } catch (error) {
      if (error instanceof KhalaError && isConnectionFailure(error.cause)) {
        // It may be committed all the same: whoever repeats the call is told of duplicates.
        return calls.map(() => ({ error }));
      }
      if (tries > 1 && isTaken(error)) return this.#withoutKnown(calls, tries - 1);
      if (isRepeatable(error)) {
        if (tries <= 1) return calls.map(() => ({ error: busy(error) }));
        await stepAside(this.#desk.context, TRIES - tries);
        return this.#commit(calls, tries - 1);
      }
      if (calls.length === 1) return [{ error }];
      // It was rolled back. One bad call must fail its own publisher only: halve them until it stands alone.
      const half = calls.length >> 1;
      const first = await this.#commit(calls.slice(0, half), TRIES);
      return [...first, ...(await this.#commit(calls.slice(half), TRIES))];
    }
  }

  async #put(calls: readonly Call[]): Promise<void> {
    const { database, context, options, lanes, arrivals, handover, fewest } = this.#desk;
    const artifacts = calls.flatMap((call) => call.artifacts);
    if (artifacts.length === 0) return;
    const items: Routed[] = artifacts.map((artifact) => ({ artifact, routing: routed(options, artifact) }));
    const bodies = calls.flatMap((call) => call.bodies);
    const queued = arrivals.without(items);
    const taking = await handover.offer(queued);
    try {
      const now = context.clock.now();
      const how = { routes: options.routes, lanes, arrivals, now, fewest, ...taking.statement };
      const { statement, packed } = putting(items, queued, bodies, how);
      const [rows] = await database.transaction([statement, ...arrivals.statements(items, bodies, now)]);
      tellOfArtifacts(this.#desk, items, rows!, taking.taken(packed, rows!));
    } finally {
      taking.end();
    }
  }

  /** Somebody has published some of it: each call is judged by what is there now. */
  async #withoutKnown(calls: readonly Call[], tries: number): Promise<Outcome[]> {
    const known = await knownOf(
      this.#desk.database,
      calls.flatMap((call) => call.artifacts),
    );
    const outcomes: Outcome[] = [];
    const rest: { readonly at: number; readonly call: Call; readonly fresh: readonly boolean[] }[] = [];
    calls.forEach((call, at) => {
      const there = call.artifacts.map((artifact) => known.get(versionKey(artifact)));
      const other = call.artifacts.find((artifact, i) => there[i] && !sameContent(artifact, there[i]));
      if (other) {
        outcomes[at] = { error: conflict(other) };
        return;
      }
      const fresh = there.map((artifact) => artifact === undefined);
      const kept = <T>(all: readonly T[]) => all.filter((_, i) => fresh[i]);
      const { artifacts, keys, bodies } = call;
      const left = { ...call, artifacts: kept(artifacts), keys: kept(keys), bodies: kept(bodies) };
      rest.push({ at, call: left, fresh });
    });
    const put = await this.#commit(
      rest.map(({ call }) => call),
      tries,
    );
    rest.forEach(({ at, fresh }, i) => {
      const outcome = put[i]!;
      if ("error" in outcome) {
        outcomes[at] = outcome;
        return;
      }
      const statuses = [...(outcome.ok as Status[])];
      outcomes[at] = { ok: fresh.map((isFresh) => (isFresh ? statuses.shift()! : "duplicate")) };
    });
    return outcomes;
  }
}

/** What an artifact leads to, if this process routes. */
export function routed({ routes, route }: BoardOptions, artifact: Artifact): Routed["routing"] {
  return routes ? route(artifact) : { tasks: [], dead: [] };
}

/** Tells whoever listens of artifacts that are on the board now; `rows` are those of the put. */
export function tellOfArtifacts(
  desk: Desk,
  items: readonly Routed[],
  rows: readonly Record<string, unknown>[],
  taken: number,
): void {
  const { observer } = desk.options;
  observer.published(items.map(({ artifact }) => artifact));
  if (rows.length === 0) return desk.unrouted();
  const agents = new Set<string>();
  let tasks = 0;
  for (const { artifact, routing } of items) {
    observer.routed(artifact, routing.tasks);
    tasks += routing.tasks.length;
    for (const { agent } of routing.tasks) agents.add(agent);
  }
  if (tasks > taken) desk.created(agents, tasks - taken);
}

/** Calls that share an artifact do not share a commit: the later ones find what the first has done. */
function apart(calls: readonly Call[]): { now: number[]; later: number[] } {
  if (areAscending(calls.flatMap(({ keys }) => keys))) return { now: [...calls.keys()], later: [] };
  const seen = new Set<string>();
  const now: number[] = [];
  const later: number[] = [];
  calls.forEach(({ keys }, i) => {
    (keys.some((key) => seen.has(key)) ? later : now).push(i);
    for (const key of keys) seen.add(key);
  });
  return { now, later };
}
