import { busy } from "../../database/commit_each.ts";
import { isItemFault, isRepeatable, isUncertain } from "../../database/database.ts";
import { GroupCommit, type Outcome } from "../../kit/group_commit.ts";
import { type Artifact, areAscending, conflict, sameContent, versionKey } from "../model/artifact.ts";
import type { Task } from "../model/task.ts";
import {
  type BoardParts,
  isDuplicate,
  knownArtifacts,
  route,
  tellOfArtifacts,
  waitBeforeRepeat,
} from "./board_parts.ts";
import { enqueueStatement, putStatement } from "./statements.ts";

type Status = "published" | "duplicate";

/** The publication of one caller. */
interface Call {
  readonly artifacts: readonly Artifact[];
  /** The version keys of the artifacts. */
  readonly keys: readonly string[];
}

const TRIES = 10;

/** Publishes and enqueues. Callers at the same time share a commit. */
export class Publisher {
  readonly #parts: BoardParts;
  readonly #calls: GroupCommit<Call, readonly Status[]>;

  constructor(parts: BoardParts) {
    this.#parts = parts;
    this.#calls = new GroupCommit({
      commit: (calls) => this.#commit(calls, TRIES),
      sizeOf: ({ artifacts }) => artifacts.reduce((sum, artifact) => sum + sizeOf(artifact), 0),
      countOf: ({ artifacts }) => artifacts.length,
      maxItems: 512,
      maxBytes: 8 << 20,
      maxWaitingBytes: 64 << 20,
    });
  }

  /** Publishes all or none. */
  async publish(artifacts: readonly Artifact[]): Promise<readonly Status[]> {
    if (artifacts.length === 0) return [];
    const keys = artifacts.map(versionKey);
    if (areAscending(keys)) return this.#calls.write({ artifacts, keys });
    const first = new Map<string, Artifact>();
    const repeated = artifacts.map((artifact, i) => {
      const before = first.get(keys[i]!);
      if (!before) first.set(keys[i]!, artifact);
      else if (!sameContent(before, artifact)) throw conflict(artifact);
      return before !== undefined;
    });
    const statuses = await this.#calls.write({ artifacts: [...first.values()], keys: [...first.keys()] });
    let next = 0;
    return repeated.map((again) => (again ? "duplicate" : statuses[next++]!));
  }

  /** Puts tasks before their agents without routing. */
  async enqueue(tasks: readonly Task[]): Promise<void> {
    if (tasks.length === 0) return;
    const { database, context, options, lanes, created } = this.#parts;
    const statement = enqueueStatement(tasks, lanes, context.clock.now());
    for (let tries = TRIES; ; tries--) {
      try {
        const rows = await database.query<{ n: number }>(statement);
        const fresh = new Set(rows.map(({ n }) => n));
        if (fresh.size > 0)
          created(new Set(tasks.filter((_, n) => fresh.has(n)).map(({ agent }) => agent)), fresh.size);
        tasks.forEach((task, n) => {
          if (!fresh.has(n)) options.observer.repeated(task);
        });
        return;
      } catch (error) {
        if (!isRepeatable(error)) throw error;
        if (tries <= 1) throw busy(error);
        await waitBeforeRepeat(context, TRIES - tries);
      }
    }
  }

  drain(): Promise<void> {
    return this.#calls.drain();
  }

  async #commit(calls: readonly Call[], tries: number): Promise<Outcome[]> {
    const later = sharing(calls);
    if (later.size > 0) return this.#inTwo(calls, (i) => later.has(i), tries);
    try {
      await this.#put(calls.flatMap(({ artifacts }) => artifacts));
      return calls.map(({ artifacts }) => ({ ok: artifacts.map((): Status => "published") }));
    } catch (error) {
      // It may be committed all the same: a repeated call reports duplicates.
      if (isUncertain(error)) return calls.map(() => ({ error }));
      if (tries > 1 && isDuplicate(error)) return this.#withoutKnown(calls, tries - 1);
      if (isRepeatable(error)) {
        if (tries <= 1) return calls.map(() => ({ error: busy(error) }));
        await waitBeforeRepeat(this.#parts.context, TRIES - tries);
        return this.#commit(calls, tries - 1);
      }
      if (calls.length === 1 || !isItemFault(error)) return calls.map(() => ({ error }));
      // It was rolled back. One bad call must fail its own publisher only: halve them until it stands alone.
      const half = calls.length >> 1;
      return this.#inTwo(calls, (i) => i >= half, TRIES);
    }
  }

  /** Commits some calls after the others. */
  async #inTwo(calls: readonly Call[], isLater: (i: number) => boolean, tries: number): Promise<Outcome[]> {
    const outcomes: Outcome[] = [];
    for (const later of [false, true]) {
      const at = [...calls.keys()].filter((i) => isLater(i) === later);
      const some = await this.#commit(
        at.map((i) => calls[i]!),
        tries,
      );
      at.forEach((i, k) => {
        outcomes[i] = some[k]!;
      });
    }
    return outcomes;
  }

  async #put(artifacts: readonly Artifact[]): Promise<void> {
    if (artifacts.length === 0) return;
    const { database, context, options, lanes } = this.#parts;
    const items = route(options, artifacts);
    await database.query(putStatement(items, { lanes, now: context.clock.now() }));
    tellOfArtifacts(this.#parts, items);
  }

  /** Some artifacts are on the board: each call is judged by what is there now. */
  async #withoutKnown(calls: readonly Call[], tries: number): Promise<Outcome[]> {
    const known = await knownArtifacts(
      this.#parts.database,
      calls.flatMap(({ artifacts }) => artifacts),
    );
    const isOther = (artifact: Artifact) => {
      const there = known.get(versionKey(artifact));
      return there !== undefined && !sameContent(artifact, there);
    };
    const judged = calls.map(({ artifacts, keys }) => {
      const other = artifacts.find(isOther);
      const isFresh = keys.map((key) => !known.has(key));
      const fresh = {
        artifacts: artifacts.filter((_, i) => isFresh[i]),
        keys: keys.filter((_, i) => isFresh[i]),
      };
      return { other, isFresh, fresh };
    });
    const rest = judged.filter(({ other }) => !other);
    const put = await this.#commit(
      rest.map(({ fresh }) => fresh),
      tries,
    );
    return judged.map((call) => {
      if (call.other) return { error: conflict(call.other) };
      const outcome = put[rest.indexOf(call)]!;
      return "error" in outcome
        ? outcome
        : { ok: call.isFresh.map((fresh): Status => (fresh ? "published" : "duplicate")) };
    });
  }
}

/** About how many bytes an artifact takes, without writing it as JSON for that alone. */
function sizeOf({ payload }: Artifact): number {
  return 500 + (typeof payload === "string" ? payload.length : (JSON.stringify(payload)?.length ?? 0));
}

/** Calls that share an artifact with one before them: they find what that one has done. */
function sharing(calls: readonly Call[]): ReadonlySet<number> {
  const later = new Set<number>();
  if (calls.length === 1 || areAscending(calls.flatMap(({ keys }) => keys))) return later;
  const seen = new Set<string>();
  calls.forEach(({ keys }, i) => {
    if (keys.some((key) => seen.has(key))) later.add(i);
    for (const key of keys) seen.add(key);
  });
  return later;
}
