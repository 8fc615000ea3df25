import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { ClusterOffsets } from "../client/cluster_offsets.ts";
import type { Position } from "../topics/log_reader.ts";

/** A group that reads a topic. */
export interface LagReader {
  /** "router" or the agent's name. */
  readonly reader: string;
  readonly topic: string;
  readonly group: string;
}

/** Counts the records from a position up to an offset, exclusive. */
export type CountRecords = (from: Position, to: number) => Promise<number>;

/** Up to so many offsets are looked at, so that one who has read everything has no lag whatever markers are left. */
const EXACT = 32;

/**
 * How far readers are behind, in records. Transaction markers have offsets of their own, so that a reader who is further
 * behind than a few has a figure that counts them too.
 */
export function lagMeter(
  offsets: Pick<ClusterOffsets, "committed" | "list">,
  count: CountRecords,
  readers: readonly LagReader[],
): () => Promise<PartitionLagJson[]> {
  /** What was counted last, by place: nothing is read again while nothing moves. */
  const counted = new Map<string, { readonly from: number; readonly to: number; readonly records: number }>();

  async function recordsIn(from: Position, to: number): Promise<number> {
    const between = Math.max(0, to - from.offset);
    if (between === 0 || between > EXACT) return between;
    const place = `${from.partition}/${from.topic}`;
    const last = counted.get(place);
    if (last?.from === from.offset && last.to === to) return last.records;
    const records = await count(from, to);
    counted.set(place, { from: from.offset, to, records });
    return records;
  }

  return async () => {
    const topics = readers.map(({ topic }) => topic);
    // What is committed is asked for first: it never passes where the log ends.
    const committed = await offsets.committed(readers.map(({ group }) => group));
    const [lows, stables, highs] = await Promise.all([
      offsets.list(topics, "low"),
      offsets.list(topics, "stable"),
      offsets.list(topics, "high"),
    ]);
    const partitions = readers.flatMap(({ reader, topic, group }) => {
      const ends = [...(stables.get(topic) ?? [])].sort(([one], [other]) => one - other);
      return ends.map(async ([partition, stable]) => {
        const low = lows.get(topic)?.get(partition) ?? 0;
        const own = committed.get(group)?.get(topic)?.get(partition) ?? -1;
        const lag = await recordsIn({ topic, partition, offset: Math.max(own, low) }, stable);
        const held = Math.max(0, (highs.get(topic)?.get(partition) ?? stable) - stable);
        return { reader, topic, partition, lag: String(lag), lag_high: String(lag + held) };
      });
    });
    return Promise.all(partitions);
  };
}
