import type { CorrelationCounts, CorrelationName, Task } from "@khala/server/blackboard";
import {
  decodeArtifact,
  decodeProcessed,
  decodeRetry,
  decodeTask,
  decodeWaiting,
} from "../topics/decoding.ts";
import type { LogRecord } from "../topics/log_reader.ts";
import { OldestKeys } from "../topics/oldest_keys.ts";
import type { ProcessedEntry } from "../topics/records.ts";
import { type ArtifactSummary, summaryOf } from "./artifact_summary.ts";

type State = "open" | "done" | "dead";

interface Correlation {
  readonly artifacts: Set<string>;
  /** By task and agent: the outcome of the task, and of each replay. */
  readonly tasks: Map<string, Map<string, State>>;
  /** By open task that failed: the time of its next attempt. */
  readonly retries: Map<string, number>;
  /** By partition: the last of its artifacts that may not be routed yet. */
  readonly unrouted: Map<number, number>;
  /** The number of changes. */
  changes: number;
}

/** Correlations that seem to be done, by `keyOf`, with the number of changes at that point. */
export type Unconfirmed = ReadonlyMap<string, number>;

/** The key of a correlation: names are unique within an org only. */
export function keyOf({ org, name }: CorrelationName): string {
  return `${org.length}:${org}:${name}`;
}

/** The limits: correlations, and ids in all of them. */
export interface CorrelationLimits {
  readonly maxCorrelations: number;
  readonly maxIds: number;
}

const FIRST = "";
const RANK: Readonly<Record<State, number>> = { open: 0, dead: 1, done: 2 };

/**
 * The progress of correlations, counted from the records in the window of the logs. Everything is a set by id, so that
 * records may arrive twice, and in any order between topics.
 */
export class Correlations {
  readonly #limits: CorrelationLimits;
  readonly #correlations = new Map<string, Correlation>();
  readonly #oldest = new OldestKeys(this.#correlations);
  #ids = 0;

  constructor(limits: CorrelationLimits) {
    this.#limits = limits;
  }

  /** An artifact was published. */
  onArtifact = ({ id, org, correlationId }: ArtifactSummary): void => {
    if (!correlationId) return;
    const { artifacts } = this.#of(correlationId, org);
    this.#counting(artifacts, () => artifacts.add(id));
  };

  /** Takes a record of an artifact as the router reads it. */
  onPublished = (record: LogRecord): void => {
    if (!isCorrelated(record)) return;
    const decoded = decodeArtifact(record);
    if (!decoded.ok) return;
    const artifact = summaryOf(decoded.value);
    this.onArtifact(artifact);
    if (artifact.correlationId)
      this.#of(artifact.correlationId, artifact.org).unrouted.set(record.partition, record.at);
  };

  /** Takes a record of the tasks of an agent. */
  onTask = (record: LogRecord): void => {
    if (!isCorrelated(record)) return;
    const decoded = decodeTask(record);
    if (decoded.ok) this.task(decoded.value, "open");
  };

  /** Takes a record of `processed`. */
  onProcessed = (record: LogRecord): void => {
    if (!isCorrelated(record)) return;
    const decoded = decodeProcessed(record);
    if (decoded.ok) return this.#processed(decoded.value);
    const waits = decodeWaiting(record);
    if (!waits.ok) return;
    const { correlation_id, org_id, task_id, agent, replay_id, due_at } = waits.value;
    this.#waits(correlation_id, org_id, taskKey(task_id, agent), replay_id, due_at);
  };

  /** Takes a record of a retry topic. */
  onRetry = (record: LogRecord): void => {
    if (!isCorrelated(record)) return;
    const decoded = decodeRetry(record);
    if (!decoded.ok) return;
    const { task, dueAt } = decoded.value;
    const [{ correlation_id, org_id }] = task.artifacts;
    const { id, agent, replay_id } = task;
    this.#waits(correlation_id, org_id, taskKey(id, agent), replay_id, dueAt);
  };

  /** Records the state of a task. */
  task(task: Task, state: State): void {
    const [artifact] = task.artifacts;
    if (!artifact.correlation_id) return;
    this.#note(artifact.correlation_id, artifact.org_id, taskKey(task.id, task.agent), task.replay_id, state);
  }

  /** The counts of the known correlations, at a time. */
  counts(names: readonly CorrelationName[], now: number): CorrelationCounts[] {
    return names.flatMap((each) => {
      const known = this.#correlations.get(keyOf(each));
      if (!known) return [];
      const counts = { open: 0, retrying: 0, done: 0, dead: 0 };
      for (const [key, runs] of known.tasks) {
        const state = newest(runs);
        counts[state]++;
        if (state === "open" && (known.retries.get(key) ?? 0) > now) counts.retrying++;
      }
      return [{ correlationId: each.name, org: each.org, artifacts: known.artifacts.size, ...counts }];
    });
  }

  /** Correlations without open tasks, as far as the logs were read. */
  unconfirmed(names: readonly CorrelationName[]): Unconfirmed {
    const unconfirmed = new Map<string, number>();
    for (const key of names.map(keyOf)) {
      const known = this.#correlations.get(key);
      if (known && !hasOpen(known)) unconfirmed.set(key, known.changes);
    }
    return unconfirmed;
  }

  /**
   * Confirms correlations, once the router has committed these offsets and everything up to them was read. Those with
   * artifacts that are not routed yet, or with changes since, stay unconfirmed.
   */
  routed(unconfirmed: Unconfirmed, committed: ReadonlyMap<number, number>): Unconfirmed {
    const left = new Map<string, number>();
    for (const [key, changes] of unconfirmed) {
      const known = this.#correlations.get(key);
      if (!known) continue;
      for (const [partition, offset] of known.unrouted)
        if (offset < (committed.get(partition) ?? -1)) known.unrouted.delete(partition);
      if (hasOpen(known) || (known.unrouted.size === 0 && known.changes === changes)) continue;
      left.set(key, known.changes);
    }
    return left;
  }

  #processed({ correlation_id, org_id, task_id, agent, replay_id, result }: ProcessedEntry): void {
    if (!correlation_id) return;
    this.#note(correlation_id, org_id, taskKey(task_id, agent), replay_id, result);
  }

  #waits(
    correlationId: string | undefined,
    org: string,
    key: string,
    replay: string | undefined,
    dueAt: number,
  ): void {
    if (!correlationId) return;
    this.#note(correlationId, org, key, replay, "open");
    const { retries } = this.#of(correlationId, org);
    if (dueAt > (retries.get(key) ?? 0)) retries.set(key, dueAt);
  }

  #note(correlationId: string, org: string, key: string, replay: string | undefined, state: State): void {
    const { tasks, retries } = this.#of(correlationId, org);
    const runs = tasks.get(key) ?? new Map<string, State>();
    const run = replay || FIRST;
    const known = runs.get(run);
    if (known !== undefined && RANK[known] >= RANK[state]) return;
    runs.set(run, state);
    if (state !== "open") retries.delete(key);
    this.#counting(tasks, () => tasks.set(key, runs));
  }

  #of(correlationId: string, org: string): Correlation {
    const key = keyOf({ org, name: correlationId });
    const known = this.#correlations.get(key) ?? {
      artifacts: new Set(),
      tasks: new Map(),
      retries: new Map(),
      unrouted: new Map(),
      changes: 0,
    };
    known.changes++;
    // Moves it to the end: it is evicted last.
    this.#correlations.delete(key);
    this.#correlations.set(key, known);
    return known;
  }

  #counting(ids: { readonly size: number }, add: () => void): void {
    const before = ids.size;
    add();
    this.#ids += ids.size - before;
    const over = () =>
      this.#correlations.size > this.#limits.maxCorrelations || this.#ids > this.#limits.maxIds;
    while (over() && this.#correlations.size > 1) {
      const oldest = this.#oldest.next()!;
      const { artifacts, tasks } = this.#correlations.get(oldest)!;
      this.#correlations.delete(oldest);
      this.#ids -= artifacts.size + tasks.size;
    }
  }
}

/** A task and its replays, within a correlation. */
function taskKey(id: string, agent: string): string {
  return `${id}:${agent}`;
}

/** Whether it can belong to a correlation; otherwise decoding it is not worth it. */
function isCorrelated({ value }: LogRecord): boolean {
  return value?.includes('"correlation_id"') ?? false;
}

function hasOpen({ tasks }: Correlation): boolean {
  return tasks.values().some((runs) => newest(runs) === "open");
}

/** The outcome of the last replay; ids of replays sort by time. */
function newest(runs: ReadonlyMap<string, State>): State {
  let last = FIRST;
  for (const run of runs.keys()) if (run > last) last = run;
  return runs.get(last) ?? "open";
}
