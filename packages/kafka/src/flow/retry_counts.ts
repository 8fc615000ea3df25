import type { Context, Service } from "@khala/server/blackboard";
import type { ClusterOffsets } from "../client/cluster_offsets.ts";
import { patiently, stableBounds } from "../topics/catch_up.ts";
import { openLogReader } from "../topics/log_reader.ts";
import { LogTail, type Source } from "../topics/log_tail.ts";
import { HEADER, headerText } from "../topics/record_headers.ts";
import type { ViewsOptions } from "../views/views.ts";

/** The number of tasks in the retry topics, by agent. */
export interface RetryCounts extends Service {
  count(): Promise<ReadonlyMap<string, number>>;
}

interface Waiting {
  readonly offset: number;
  readonly agent: string;
}

const TIMEOUT_MS = 10_000;
/** The limit per partition: records beyond it are not counted. */
const MAX_WAITING = 20_000;

/** Tails the retry topics. Records behind the committed offset of their group are waiting. */
export async function openRetryCounts(
  context: Context,
  { offsets, settings, names }: Pick<ViewsOptions, "offsets" | "settings" | "names">,
): Promise<RetryCounts> {
  const { kafka, prefix, retryDelaysMs: delaysMs } = settings;
  const waiting = new Map<string, Waiting[][]>();
  const topics = delaysMs.map((delayMs) => names.retry(delayMs));

  /** The offset behind the last moved record, by topic and partition; less than 0 without one. */
  async function committed(
    known: Pick<ClusterOffsets, "committed">,
  ): Promise<Map<string, ReadonlyMap<number, number>>> {
    const groups = delaysMs.map((delayMs) => names.retryGroup(delayMs));
    const found = await known.committed(groups);
    return new Map(topics.map((topic, i) => [topic, found.get(groups[i]!)?.get(topic) ?? new Map()]));
  }

  // Brokers that are starting have no coordinators yet.
  const patient = patiently(offsets);
  const done = await committed(patient);
  const sources: Source[] = [];
  for (const topic of topics) {
    const bounds = await stableBounds(patient, topic);
    const partitions: Waiting[][] = [];
    waiting.set(topic, partitions);
    sources.push({
      topic,
      from: bounds.map(({ partition, low }) => ({
        topic,
        partition,
        offset: Math.max(low, done.get(topic)?.get(partition) ?? low),
      })),
      onRecord(record) {
        partitions[record.partition] ??= [];
        const list = partitions[record.partition]!;
        const agent = headerText(record, HEADER.agent);
        if (agent !== undefined) list.push({ offset: record.at, agent });
        if (list.length > MAX_WAITING) list.shift();
      },
    });
  }
  const tail = await LogTail.open(context, () => openLogReader(context, kafka, `${prefix}views`), sources);

  return {
    async count() {
      const counts = new Map<string, number>();
      const ends = [...(await offsets.list(topics, "stable"))].flatMap(([topic, partitions]) =>
        [...partitions].map(([partition, offset]) => ({ topic, partition, offset })),
      );
      await tail.reached(ends, TIMEOUT_MS);
      if (![...waiting.values()].flat().some((list) => list.length > 0)) return counts;
      const done = await committed(offsets);
      for (const [topic, partitions] of waiting)
        for (const [partition, list] of partitions.entries()) {
          const left = (list ?? []).filter(({ offset }) => offset >= (done.get(topic)?.get(partition) ?? 0));
          partitions[partition] = left;
          for (const { agent } of left) counts.set(agent, (counts.get(agent) ?? 0) + 1);
        }
      return counts;
    },
    stop: () => tail.stop(),
  };
}
