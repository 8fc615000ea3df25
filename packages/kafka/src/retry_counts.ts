import type { Context, Service } from "@khala/server/blackboard";
import type { KafkaSettings } from "./client.ts";
import type { ClusterOffsets } from "./cluster_offsets.ts";
import { openLogReader } from "./log_reader.ts";
import { LogTail, type Source } from "./log_tail.ts";
import { endsOf, stableBounds } from "./offsets.ts";
import { HEADER, headerText } from "./record_headers.ts";
import type { TopicNames } from "./topics.ts";

/** How many tasks wait in the retry topics, by agent. */
export interface RetryCounts extends Service {
  count(): Promise<ReadonlyMap<string, number>>;
}

interface Waiting {
  readonly offset: number;
  readonly agent: string;
}

const TIMEOUT_MS = 10_000;
/** Of one partition: what is beyond is not counted. */
const MAX_WAITING = 20_000;

/** Follows the retry topics: the records that their groups have not moved on yet are those that wait. */
export async function openRetryCounts(
  context: Context,
  kafka: KafkaSettings,
  offsets: Pick<ClusterOffsets, "committed" | "list">,
  names: TopicNames,
  delaysMs: readonly number[],
  group: string,
): Promise<RetryCounts> {
  const waiting = new Map<string, Waiting[][]>();

  async function committed(delayMs: number): Promise<Map<number, number>> {
    const group = names.retryGroup(delayMs);
    const done = (await offsets.committed([group])).get(group)?.get(names.retry(delayMs));
    return new Map([...(done ?? [])].filter(([, offset]) => offset >= 0));
  }

  const sources: Source[] = [];
  for (const delayMs of delaysMs) {
    const topic = names.retry(delayMs);
    const [bounds, done] = await Promise.all([stableBounds(offsets, topic), committed(delayMs)]);
    const partitions: Waiting[][] = [];
    waiting.set(topic, partitions);
    sources.push({
      topic,
      from: bounds.map(({ partition, low }) => ({
        topic,
        partition,
        offset: Math.max(low, done.get(partition) ?? low),
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
  const tail = new LogTail(context, await openLogReader(context, kafka, group), sources);

  return {
    async count() {
      const counts = new Map<string, number>();
      await Promise.all(
        delaysMs.map(async (delayMs) => {
          const topic = names.retry(delayMs);
          await tail.reached(await endsOf(offsets, topic, "stable"), TIMEOUT_MS);
          const done = await committed(delayMs);
          const partitions = waiting.get(topic) ?? [];
          for (const [partition, list] of partitions.entries()) {
            const left = (list ?? []).filter(({ offset }) => offset >= (done.get(partition) ?? 0));
            partitions[partition] = left;
            for (const { agent } of left) counts.set(agent, (counts.get(agent) ?? 0) + 1);
          }
        }),
      );
      return counts;
    },
    stop: () => tail.stop(),
  };
}
