import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { ClusterOffsets } from "./cluster_offsets.ts";
import type { LogTail } from "./log_tail.ts";

/** A group that reads a topic. */
export interface LagReader {
  /** "router" or the agent's name. */
  readonly reader: string;
  readonly topic: string;
  readonly group: string;
}

/**
 * How far readers are behind, in records as far as the tail of the log knows them. Transaction markers have offsets of
 * their own, so that a reader who is far behind may have a figure that is a little high; one who is not behind has 0.
 */
export async function measureLag(
  offsets: Pick<ClusterOffsets, "committed" | "list">,
  tail: Pick<LogTail, "next" | "recordsFrom">,
  readers: readonly LagReader[],
): Promise<PartitionLagJson[]> {
  const topics = readers.map(({ topic }) => topic);
  // What is committed is asked for first: it never passes where the log ends.
  const committed = await offsets.committed(readers.map(({ group }) => group));
  const [lows, stables, highs] = await Promise.all([
    offsets.list(topics, "low"),
    offsets.list(topics, "stable"),
    offsets.list(topics, "high"),
  ]);
  return readers.flatMap(({ reader, topic, group }) => {
    const ends = [...(stables.get(topic) ?? [])].sort(([one], [other]) => one - other);
    return ends.map(([partition, stable]) => {
      const low = lows.get(topic)?.get(partition) ?? 0;
      const own = committed.get(group)?.get(topic)?.get(partition) ?? -1;
      const position = own < 0 ? low : Math.max(own, low);
      const readAll = tail.next(topic, partition) >= stable;
      const lag = readAll ? tail.recordsFrom(topic, partition, position) : Math.max(0, stable - position);
      const held = Math.max(0, (highs.get(topic)?.get(partition) ?? stable) - stable);
      return { reader, topic, partition, lag: String(lag), lag_high: String(lag + held) };
    });
  });
}
