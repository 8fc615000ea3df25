import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { KafkaAdmin } from "./client_types.ts";
import type { Committed, GroupOffsets } from "./group_offsets.ts";
import type { LogTail } from "./log_tail.ts";
import { highWatermarks, stableBounds } from "./offsets.ts";

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
  admin: KafkaAdmin,
  groups: Pick<GroupOffsets, "committed">,
  tail: Pick<LogTail, "next" | "recordsFrom">,
  readers: readonly LagReader[],
): Promise<PartitionLagJson[]> {
  const committed = await groups.committed(readers.map(({ group }) => group));
  const measured = await Promise.all(readers.map((reader) => lagOf(admin, committed, tail, reader)));
  return measured.flat();
}

async function lagOf(
  admin: KafkaAdmin,
  committed: Committed,
  tail: Pick<LogTail, "next" | "recordsFrom">,
  { reader, topic, group }: LagReader,
): Promise<PartitionLagJson[]> {
  const [bounds, high] = await Promise.all([stableBounds(admin, topic), highWatermarks(admin, topic)]);
  return bounds.map(({ partition, low, end: stable }) => {
    const own = committed.get(group)?.get(topic)?.get(partition) ?? -1;
    const position = own < 0 ? low : Math.max(own, low);
    const readAll = tail.next(topic, partition) >= stable;
    const lag = readAll ? tail.recordsFrom(topic, partition, position) : Math.max(0, stable - position);
    const held = Math.max(0, (high.get(partition) ?? stable) - stable);
    return { reader, topic, partition, lag: String(lag), lag_high: String(lag + held) };
  });
}
