import {
  type Artifact,
  type Context,
  type DeadLetter,
  type Failure,
  isoTime,
  type Settlement,
  type Task,
} from "@khala/server/blackboard";
import {
  artifactRecord,
  byIdRecord,
  deadLetterRecord,
  type Outgoing,
  positionText,
  processedRecord,
  retryRecord,
  returnedRecord,
  waitingRecord,
} from "../topics/records.ts";
import type { TopicNames } from "../topics/topics.ts";
import type { PartitionWork, Work } from "./partition_work.ts";
import { tierFor } from "./retry_tiers.ts";

/** The outcome of a record: a settlement, or nothing to settle. */
export type Result =
  | Settlement
  /** The task had been settled before. */
  | { readonly kind: "repeated" }
  /** It cannot be read, or not be settled otherwise, and becomes a dead letter unchanged. */
  | { readonly kind: "unreadable"; readonly error?: string };

/** A record with its result, to be settled. */
export interface Finished {
  readonly work: Work;
  readonly result: Result;
}

/** The rules for writing a result. */
export interface SettlementRules {
  readonly agent: string;
  readonly strict: boolean;
  readonly names: TopicNames;
  /** The size limit of a task, as a record. */
  readonly maxTaskBytes: number;
  readonly retryDelaysMs: readonly number[];
  /** Returns the newest known version of an artifact. */
  version(artifact: Pick<Artifact, "org_id" | "id">): number | undefined;
  /** An output is published. */
  wrote(output: Artifact): void;
}

/** The task to run after a failure, or after it was postponed. */
export function nextAttempt(task: Task, { uncounted }: { readonly uncounted?: true }): Task {
  return uncounted ? task : { ...task, attempt: task.attempt + 1 };
}

/** Whether a retry waits in place: to block its key, or because its delay is shorter than any topic's. */
export function waitsInPlace(result: Result, { strict, retryDelaysMs }: SettlementRules): boolean {
  return result.kind === "retry" && (strict || result.delayMs < Math.min(...retryDelaysMs));
}

/** The outputs of a result that are not on the board yet: a second run has the same ones. */
export function freshOutputs(rules: SettlementRules, result: Result): readonly Artifact[] {
  if (result.kind !== "done") return [];
  return result.outputs.filter((output) => (rules.version(output) ?? 0) < output.version);
}

/** The records that settle a result, in one transaction with the offset. `fresh` are its outputs that are new. */
export function recordsOf(
  context: Pick<Context, "clock" | "newId">,
  rules: SettlementRules,
  { work, result }: Finished,
  fresh: readonly Artifact[],
): Outgoing[] {
  const { names, agent } = rules;
  const { task, partition } = work;
  if (result.kind === "repeated") return [];
  if (!task || result.kind === "unreadable") {
    const message = (result.kind === "unreadable" ? result.error : undefined) ?? work.error ?? "";
    const failure: Failure = { class: "UnreadableRecord", message, kind: "fatal" };
    return [deadRecord(context, rules, work, failure)];
  }
  const now = context.clock.now();
  const processed = (how: "done" | "dead") => ({
    topic: names.processed,
    record: processedRecord(task, how, partition.positionOf(work), isoTime(now)),
  });
  if (result.kind === "done") {
    const outputs = fresh.flatMap((artifact) => {
      const json = JSON.stringify(artifact);
      return [
        { topic: names.artifacts, record: artifactRecord(artifact, json) },
        { topic: names.byId, record: byIdRecord(artifact, json) },
      ];
    });
    return [...outputs, processed("done")];
  }
  if (result.kind === "dead")
    return [deadRecord(context, rules, work, result.failure, task), processed("dead")];
  const next = nextAttempt(task, result);
  const dueAt = now + result.delayMs;
  if (waitsInPlace(result, rules))
    return [{ topic: names.processed, record: waitingRecord(next, dueAt, partition.partition) }];
  const origin = partition.origin(work);
  const tier = tierFor(rules.retryDelaysMs, result.delayMs);
  if (tier === undefined) return [{ topic: names.tasks(agent), record: returnedRecord(next, origin) }];
  return [{ topic: names.retry(tier), record: retryRecord(next, result.failure, origin, dueAt) }];
}

function deadRecord(
  { clock, newId }: Pick<Context, "clock" | "newId">,
  { names, agent }: SettlementRules,
  work: Work,
  failure: Failure,
  task?: Task,
): Outgoing {
  const origin = work.partition.origin(work);
  const letter: DeadLetter = {
    id: newId(),
    agent,
    ...(task && { task }),
    failure,
    attempts: task?.attempt ?? 1,
    failed_at: new Date(clock.now()).toISOString(),
    origin: positionText(origin),
  };
  return { topic: names.deadLetters(agent), record: deadLetterRecord(letter, origin, work.record) };
}

/** The offsets to commit once these are settled: below the lowest unsettled one. */
export function offsetsOf(
  batch: readonly Finished[],
  rules: SettlementRules,
): Map<PartitionWork, { readonly offset: string }> {
  const finished = new Map<PartitionWork, Set<number>>();
  for (const { work, result } of batch) {
    const offsets = finished.get(work.partition) ?? new Set();
    finished.set(work.partition, offsets);
    if (!waitsInPlace(result, rules)) offsets.add(work.offset);
  }
  return new Map(
    [...finished].map(([partition, offsets]) => [
      partition,
      { offset: String(partition.tracker.position(offsets)) },
    ]),
  );
}
