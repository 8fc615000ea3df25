import type { Context, CorrelationCounts, CorrelationName, Service } from "@khala/server/blackboard";
import type { ClusterOffsets } from "./cluster_offsets.ts";
import { type Correlations, type Doubts, keyOf } from "./correlations.ts";
import type { LogReader } from "./log_reader.ts";
import { LogTail, type Source } from "./log_tail.ts";
import { stableBounds } from "./offsets.ts";
import { Shared } from "./shared.ts";
import { readUpToNow, startOf } from "./up_to_now.ts";

export interface CountedLogs {
  readonly artifacts: string;
  readonly routerGroup: string;
  readonly processed: string;
  /** Of each agent. */
  readonly tasks: readonly string[];
  readonly retries: readonly string[];
  /** How many records of each partition are looked back. */
  readonly back: number;
}

/** Answers how far correlations have come. */
export interface CountedCorrelations extends Service {
  counts(names: readonly CorrelationName[]): Promise<CorrelationCounts[]>;
}

/** A correlation of which something is heard meanwhile is looked at again, so often. */
const LOOKS = 3;

/**
 * Counts the tasks of correlations. Their logs are twice as many records as all others, and tell of nothing else: they
 * are followed from the first time that somebody asks.
 */
export function openCorrelationCounts(
  context: Context,
  offsets: Pick<ClusterOffsets, "committed" | "list">,
  openReader: () => Promise<LogReader>,
  logs: CountedLogs,
  correlations: Correlations,
): CountedCorrelations {
  let following: Promise<LogTail> | undefined;

  async function follow(): Promise<LogTail> {
    const topics: [topic: string, onRecord: Source["onRecord"]][] = [
      [logs.artifacts, correlations.onPublished],
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
    const tail = await LogTail.open(context, openReader, sources);
    try {
      await Promise.all(topics.map(([topic]) => readUpToNow(context, offsets, tail, topic)));
      return tail;
    } catch (error) {
      await tail.stop();
      throw error;
    }
  }

  /**
   * Asks the router how far it is, and reads what it has made by then: what it has committed by partition, or undefined if
   * not all that was written could be read.
   */
  async function look(tail: LogTail): Promise<ReadonlyMap<number, number> | undefined> {
    const published = await readUpToNow(context, offsets, tail, logs.artifacts);
    const committed = (await offsets.committed([logs.routerGroup]))
      .get(logs.routerGroup)
      ?.get(logs.artifacts);
    const tasks = await Promise.all(logs.tasks.map((topic) => readUpToNow(context, offsets, tail, topic)));
    return [published, ...tasks].some(({ behind }) => behind) ? undefined : (committed ?? new Map());
  }

  const looks = new Shared(async () => look(await following!));

  return {
    async counts(names) {
      following ??= follow().catch((error: unknown) => {
        // The next one who asks tries again.
        following = undefined;
        throw error;
      });
      await following;
      // Where there is no agent nothing is routed.
      let doubts: Doubts = logs.tasks.length > 0 ? correlations.doubts(names) : new Map();
      for (let looked = 0; looked < LOOKS && doubts.size > 0; looked++) {
        const committed = await looks.run();
        if (!committed) break;
        doubts = correlations.routed(doubts, committed);
      }
      return correlations
        .counts(names, context.clock.now())
        .map((counts) =>
          doubts.has(keyOf({ org: counts.org, name: counts.correlationId }))
            ? { ...counts, open: 1 }
            : counts,
        );
    },
    async stop() {
      // Whoever asked was told why they cannot be followed.
      await (await following?.catch(() => undefined))?.stop();
    },
  };
}
