import { KhalaError } from "@khala/contracts";
import { type Context, idempotencyKey, type Task } from "@khala/server/blackboard";
import type { KafkaSettings } from "./client.ts";
import type { NewRecord } from "./client_types.ts";
import type { ClusterOffsets } from "./cluster_offsets.ts";
import { decodeProcessed } from "./decoding.ts";
import { type LogReader, openLogReader } from "./log_reader.ts";
import { type Mark, Marks } from "./marks.ts";
import type { WaitingMark } from "./records.ts";

/** Where marks are read from. */
export interface MarkSource {
  readonly kafka: KafkaSettings;
  readonly offsets: Pick<ClusterOffsets, "list">;
  readonly topic: string;
  /** The name that the reader has for the brokers. */
  readonly group: string;
}

interface Waits {
  readonly result: "waits";
  readonly attempt: number;
  readonly due_at: number;
}

/** Far more than can be in flight; a task that comes again after so long runs again. */
const WINDOW_MS = 86_400_000;
const MARKS_PER_PARTITION = 200_000;
const POLL_RECORDS = 5_000;
const POLL_MS = 1_000;
const LOAD_MS = 120_000;

/** The mark of a task that waits in its place: `task` is the next attempt. A crash does not forget it. */
export function waitingRecord(task: Task, dueAt: number, partition: number): NewRecord {
  const [{ correlation_id, org_id }] = task.artifacts;
  const mark = {
    task_id: task.id,
    agent: task.agent,
    ...(task.replay_id && { replay_id: task.replay_id }),
    ...(correlation_id && { correlation_id }),
    org_id,
    result: "waits",
    attempt: task.attempt,
    due_at: dueAt,
  } satisfies WaitingMark & Waits;
  return { key: idempotencyKey(task), value: JSON.stringify(mark), partition };
}

/**
 * Reads what is known of an agent's tasks in these partitions, up to where their logs end now: whoever owned them
 * before can add nothing any more.
 */
export async function loadMarks(
  context: Context,
  { kafka, offsets, topic, group }: MarkSource,
  agent: string,
  partitions: readonly number[],
  signal: AbortSignal,
): Promise<Map<number, Marks>> {
  const marks = new Map(partitions.map((partition) => [partition, new Marks(MARKS_PER_PARTITION)]));
  const spans = await spansOf(context, offsets, topic, partitions);
  if (spans.length === 0) return marks;
  const ends = new Map(spans.map(({ partition, end }) => [partition, end]));
  const reader = await openLogReader(context, kafka, group);
  try {
    reader.assign(spans.map(({ partition, start }) => ({ topic, partition, offset: start })));
    await readTo(context, reader, ends, signal, (partition, key, value) => {
      const mark = key.split(":")[1] === agent ? markOf(value) : undefined;
      if (mark) marks.get(partition)?.set(key, mark);
    });
  } finally {
    await reader.close();
  }
  return marks;
}

async function readTo(
  { clock }: Context,
  reader: LogReader,
  ends: Map<number, number>,
  signal: AbortSignal,
  onMark: (partition: number, key: string, value: Buffer | null) => void,
): Promise<void> {
  const deadline = clock.now() + LOAD_MS;
  const reached = (partition: number, offset: number) => {
    if (offset >= (ends.get(partition) ?? 0)) ends.delete(partition);
  };
  while (ends.size > 0 && !signal.aborted) {
    const poll = await reader.poll(POLL_RECORDS, POLL_MS, signal);
    for (const { partition, key, value, at } of poll.records) {
      if (key) onMark(partition, key.toString("utf8"), value);
      reached(partition, at + 1);
    }
    for (const { partition, offset } of poll.ends) reached(partition, offset);
    if (ends.size > 0 && clock.now() > deadline)
      throw new KhalaError(
        "unavailable",
        `What was settled cannot be read to its end within ${LOAD_MS} ms. Look for a hanging transaction.`,
      );
  }
}

/** Where to begin and to end; partitions that have nothing are left out. */
async function spansOf(
  { clock }: Context,
  offsets: Pick<ClusterOffsets, "list">,
  topic: string,
  partitions: readonly number[],
): Promise<{ partition: number; start: number; end: number }[]> {
  const [ends, starts] = await Promise.all([
    offsets.list([topic], "high", { patient: true }),
    offsets.list([topic], clock.now() - WINDOW_MS, { patient: true }),
  ]);
  return partitions
    .map((partition) => {
      const end = ends.get(topic)?.get(partition) ?? 0;
      // None that young: -1.
      const start = starts.get(topic)?.get(partition) ?? -1;
      return { partition, start: start < 0 ? end : start, end };
    })
    .filter(({ start, end }) => start < end);
}

function markOf(value: Buffer | null): Mark | undefined {
  if (value === null) return undefined;
  const settled = decodeProcessed({ value });
  if (settled.ok) return { kind: "settled" };
  try {
    const { result, attempt, due_at } = JSON.parse(value.toString("utf8")) as Partial<Waits>;
    if (result !== "waits" || !Number.isInteger(attempt) || !Number.isFinite(due_at)) return undefined;
    return { kind: "waits", attempt: attempt!, dueAt: due_at! };
  } catch {
    // Nothing that this driver wrote: there is no mark.
    return undefined;
  }
}
