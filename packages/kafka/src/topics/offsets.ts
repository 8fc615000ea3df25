import type { ClusterOffsets } from "../client/cluster_offsets.ts";
import type { Position } from "./log_reader.ts";

/** The bounds of a partition. */
export interface Bounds {
  readonly partition: number;
  /** The first that is left. */
  readonly low: number;
  /** Behind the last. */
  readonly end: number;
}

type Listing = Pick<ClusterOffsets, "list">;
type Known = Pick<ClusterOffsets, "committed" | "list">;

/** The same, for whoever starts: they cannot ask again. */
export function patiently(offsets: Known): Known {
  return {
    committed: (groups, options) => offsets.committed(groups, { ...options, patient: true }),
    list: (topics, at) => offsets.list(topics, at, { patient: true }),
  };
}

/** The bounds of a topic's partitions up to the last stable offsets: before them everything can be read. */
export async function stableBounds(offsets: Listing, topic: string): Promise<Bounds[]> {
  const [lows, ends] = await Promise.all([offsets.list([topic], "low"), offsets.list([topic], "stable")]);
  return [...(ends.get(topic) ?? [])]
    .map(([partition, end]) => ({ partition, low: lows.get(topic)?.get(partition) ?? 0, end }))
    .sort((one, other) => one.partition - other.partition);
}

/** Where a topic's partitions end: `stable`, before which everything can be read, or `high`, with what is still open. */
export async function endsOf(offsets: Listing, topic: string, at: "stable" | "high"): Promise<Position[]> {
  const ends = (await offsets.list([topic], at)).get(topic) ?? new Map<number, number>();
  return [...ends].map(([partition, offset]) => ({ topic, partition, offset }));
}
