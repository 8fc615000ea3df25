import { KhalaError } from "@khala/contracts";
import type { Context } from "@khala/server/blackboard";
import type { WatchedKafka } from "../client/broker_watch.ts";
import type { ClusterOffsets } from "../client/cluster_offsets.ts";
import { decodeProcessed, decodeWaiting } from "../topics/decoding.ts";
import { type LogReader, openLogReader, type Poll, type Position } from "../topics/log_reader.ts";
import { OldestKeys } from "../topics/oldest_keys.ts";

/** The source of the tasks' states. */
export interface ProcessedSource {
  readonly kafka: WatchedKafka;
  readonly offsets: Pick<ClusterOffsets, "list">;
  readonly topic: string;
  /** The reader's client id. */
  readonly group: string;
}

/** A copy of a settled task is recognised for at least this long. */
const WINDOW_MS = 86_400_000;
/** The maximum difference between the clocks of servers. */
const CLOCKS_MS = 3_600_000;
/** Far more than the tasks behind the first unsettled one. */
const STATES_PER_PARTITION = 200_000;
/** The agent in an idempotency key. */
const AGENT = /^[^:]*:([^:@]*)/;
const POLL_RECORDS = 5_000;
const POLL_MS = 1_000;
const STALLED_MS = 120_000;

/**
 * Reads the states of an agent's tasks in these partitions, up to the current end of the topic: the owner
 * before can add nothing more. `positions` is where the tasks are read from: a task behind one that took days may
 * have been settled days ago.
 */
export async function loadTaskStates(
  context: Context,
  { kafka, offsets, topic, group }: ProcessedSource,
  agent: string,
  positions: readonly Position[],
  signal: AbortSignal,
): Promise<Map<number, TaskStates>> {
  const states = new Map(positions.map(({ partition }) => [partition, new TaskStates(STATES_PER_PARTITION)]));
  const ends = await endsOf(offsets, topic, positions);
  // Nothing was ever settled here.
  if (ends.size === 0) return states;
  const reader = await openLogReader(context, kafka, group);
  try {
    const times = await firstTimes(context, reader, positions, signal);
    const now = context.clock.now();
    const starts = await offsets.list([topic], (partition) => since(now, times.get(partition)), {
      patient: true,
    });
    const from = [...ends].flatMap(([partition, end]) => {
      // No record is that young: -1.
      const offset = starts.get(topic)?.get(partition) ?? -1;
      if (offset >= 0 && offset < end) return { topic, partition, offset };
      ends.delete(partition);
      return [];
    });
    if (from.length === 0) return states;
    reader.assign(from);
    await readTo(context, reader, topic, ends, signal, (partition, key, value) => {
      const state = AGENT.exec(key)?.[1] === agent ? stateOf(value) : undefined;
      if (state) states.get(partition)?.set(key, state);
    });
  } finally {
    await reader.close();
  }
  return states;
}

/** The time from which states are read, if the first task that is read again was written at `first`. */
function since(now: number, first = now): number {
  return Math.max(0, Math.min(now - WINDOW_MS, first - CLOCKS_MS));
}

/** The time at which the first task still to be read was written, by partition; missing where there is none. */
async function firstTimes(
  context: Context,
  reader: LogReader,
  positions: readonly Position[],
  signal: AbortSignal,
): Promise<Map<number, number>> {
  const times = new Map<number, number>();
  const unknown = new Set(positions.map(({ partition }) => partition));
  reader.assign(positions);
  await readUntil(context, reader, signal, ({ records, ends }) => {
    for (const { partition, timestamp } of records)
      if (unknown.delete(partition)) times.set(partition, Number(timestamp));
    for (const { partition } of ends) unknown.delete(partition);
    return unknown.size === 0;
  });
  return times;
}

async function readTo(
  context: Context,
  reader: LogReader,
  topic: string,
  ends: Map<number, number>,
  signal: AbortSignal,
  onMark: (partition: number, key: string, value: Buffer | null) => void,
): Promise<void> {
  const reached = (partition: number, offset: number) => {
    if (offset >= (ends.get(partition) ?? 0)) ends.delete(partition);
  };
  await readUntil(context, reader, signal, (poll) => {
    for (const { topic: source, partition, key, value, at } of poll.records) {
      // A record of the tasks, fetched before the reader was assigned this topic.
      if (source !== topic) continue;
      if (key) onMark(partition, key.toString("utf8"), value);
      reached(partition, at + 1);
    }
    for (const { topic: source, partition, offset } of poll.ends)
      if (source === topic) reached(partition, offset);
    return ends.size === 0;
  });
}

/** Reads until `enough` holds, or until nothing more arrives. */
async function readUntil(
  { clock }: Context,
  reader: LogReader,
  signal: AbortSignal,
  isEnough: (poll: Poll) => boolean,
): Promise<void> {
  for (let deadline = clock.now() + STALLED_MS; !signal.aborted; ) {
    const poll = await reader.poll(POLL_RECORDS, POLL_MS, signal);
    if (isEnough(poll)) return;
    if (poll.records.length > 0) deadline = clock.now() + STALLED_MS;
    if (clock.now() > deadline)
      throw new KhalaError(
        "unavailable",
        `The records of settled tasks could not be read to the end: none arrived for ${STALLED_MS} ms. Look for a hanging transaction.`,
      );
  }
}

/** Where the partitions end, without empty partitions. */
async function endsOf(
  offsets: Pick<ClusterOffsets, "list">,
  topic: string,
  positions: readonly Position[],
): Promise<Map<number, number>> {
  const ends = (await offsets.list([topic], "high", { patient: true })).get(topic);
  const found = positions.map(({ partition }): [number, number] => [partition, ends?.get(partition) ?? 0]);
  return new Map(found.filter(([, end]) => end > 0));
}

function stateOf(value: Buffer | null): TaskState | undefined {
  if (decodeProcessed({ value }).ok) return { kind: "settled" };
  const waits = decodeWaiting({ value });
  return waits.ok ? { kind: "waits", attempt: waits.value.attempt, dueAt: waits.value.due_at } : undefined;
}

/** The state of a task by its idempotency key: settled, or waiting in place for its next attempt. */
export type TaskState =
  | { readonly kind: "settled" }
  | { readonly kind: "waits"; readonly attempt: number; readonly dueAt: number };

/**
 * The newest states of a partition's tasks, up to a bound: the oldest are evicted first. States of tasks that are in
 * flight are always among them, since far fewer can be in flight.
 */
export class TaskStates {
  readonly #states = new Map<string, TaskState>();
  readonly #oldest = new OldestKeys(this.#states);
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get(key: string): TaskState | undefined {
    return this.#states.get(key);
  }

  set(key: string, state: TaskState): void {
    this.#states.delete(key);
    this.#states.set(key, state);
    if (this.#states.size > this.#limit) this.#states.delete(this.#oldest.next()!);
  }
}
