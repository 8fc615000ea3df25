import type { Context, CorrelationCounts, Service } from "@khala/server/blackboard";
import type { ClusterOffsets } from "./cluster_offsets.ts";
import type { Correlations } from "./correlations.ts";
import type { LogReader } from "./log_reader.ts";
import { LogTail, type Source } from "./log_tail.ts";
import { stableBounds } from "./offsets.ts";
import { readUpToNow, startOf } from "./up_to_now.ts";

export interface CountedLogs {
  readonly processed: string;
  /** Of each agent. */
  readonly tasks: readonly string[];
  readonly retries: readonly string[];
  /** How many records of each partition are looked back. */
  readonly back: number;
}

/** Answers how far correlations have come. */
export interface CountedCorrelations extends Service {
  counts(ids: readonly string[]): Promise<CorrelationCounts[]>;
}

/**
 * Counts the tasks of correlations. Their logs are twice as many records as all others, and tell of nothing else: they
 * are followed from the first time that somebody asks.
 */
export function openCorrelationCounts(
  context: Context,
  offsets: Pick<ClusterOffsets, "list">,
  openReader: () => Promise<LogReader>,
  logs: CountedLogs,
  correlations: Correlations,
): CountedCorrelations {
  let following: Promise<LogTail> | undefined;

  async function follow(): Promise<LogTail> {
    const topics: [topic: string, onRecord: Source["onRecord"]][] = [
      [logs.processed, correlations.onProcessed],
      ...logs.tasks.map((topic): (typeof topics)[number] => [topic, correlations.onTask]),
      ...logs.retries.map((topic): (typeof topics)[number] => [topic, correlations.onRetry]),
    ];
    const sources = await Promise.all(
      topics.map(async ([topic, onRecord]): Promise<Source> => {
        const bounds = await stableBounds(offsets, topic);
        return { topic, onRecord, from: bounds.map((each) => startOf(topic, each, logs.back)) };
      }),
    );
    const tail = new LogTail(context, await openReader(), sources);
    try {
      await Promise.all(topics.map(([topic]) => readUpToNow(context, offsets, tail, topic)));
      return tail;
    } catch (error) {
      await tail.stop();
      throw error;
    }
  }

  return {
    async counts(ids) {
      following ??= follow().catch((error: unknown) => {
        // The next one who asks tries again.
        following = undefined;
        throw error;
      });
      await following;
      return correlations.counts(ids, context.clock.now());
    },
    async stop() {
      // Whoever asked was told why they cannot be followed.
      await (await following?.catch(() => undefined))?.stop();
    },
  };
}
