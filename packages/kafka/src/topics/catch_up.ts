import { type Context, sleep } from "@khala/server/blackboard";
import type { ClusterOffsets } from "../client/cluster_offsets.ts";
import type { Position } from "./log_reader.ts";
import type { LogTail } from "./log_tail.ts";

const FRESH_MS = 10_000;
const OPEN_MS = 500;
const RETRY_MS = 10;
/** A record may be followed by a marker, which has an offset too. */
const OFFSETS_PER_RECORD = 2;

/** The records read. */
export interface CaughtUp {
  readonly bounds: readonly Bounds[];
  /** Whether a transaction that began before the call is still open, and may have been committed. */
  readonly behind: boolean;
}

/**
 * Reads everything committed before this call. A commit is acknowledged before its markers are written: an open transaction may
 * be committed, and is waited for, though for less time than a transaction may hang.
 */
export async function catchUp(
  { clock }: Pick<Context, "clock">,
  offsets: Pick<ClusterOffsets, "list">,
  tail: LogTail,
  topic: string,
  openMs = OPEN_MS,
): Promise<CaughtUp> {
  const written = await endsOf(offsets, topic, "high");
  const deadline = clock.now() + openMs;
  for (;;) {
    const bounds = await stableBounds(offsets, topic);
    await tail.reached(
      bounds.map(({ partition, end }) => ({ topic, partition, offset: end })),
      FRESH_MS,
    );
    const behind = written.some(({ partition, offset }) => tail.next(topic, partition) < offset);
    if (!behind || clock.now() >= deadline) return { bounds, behind };
    await sleep(clock, RETRY_MS);
  }
}

/** The offset from which to read the last `back` records of a partition. */
export function windowStart(topic: string, { partition, low, end }: Bounds, back: number): Position {
  return { topic, partition, offset: Math.max(low, end - back * OFFSETS_PER_RECORD) };
}

/** The bounds of a partition. */
export interface Bounds {
  readonly partition: number;
  /** The first offset left. */
  readonly low: number;
  /** The offset behind the last record. */
  readonly end: number;
}

type Listing = Pick<ClusterOffsets, "list">;
type Known = Pick<ClusterOffsets, "committed" | "list">;

/** The same with the longer timeout, for a start that cannot retry. */
export function patiently(offsets: Known): Known {
  return {
    committed: (groups, options) => offsets.committed(groups, { ...options, patient: true }),
    list: (topics, at) => offsets.list(topics, at, { patient: true }),
  };
}

/** The bounds of a topic's partitions up to the last stable offsets: everything before them can be read. */
export async function stableBounds(offsets: Listing, topic: string): Promise<Bounds[]> {
  const [lows, ends] = await Promise.all([offsets.list([topic], "low"), offsets.list([topic], "stable")]);
  return [...(ends.get(topic) ?? [])]
    .map(([partition, end]) => ({ partition, low: lows.get(topic)?.get(partition) ?? 0, end }))
    .sort((one, other) => one.partition - other.partition);
}

/** The ends of a topic's partitions: `stable`, before which everything can be read, or `high`, with open transactions. */
async function endsOf(offsets: Listing, topic: string, at: "stable" | "high"): Promise<Position[]> {
  const ends = (await offsets.list([topic], at)).get(topic) ?? new Map<number, number>();
  return [...ends].map(([partition, offset]) => ({ topic, partition, offset }));
}
