import type { Context, CorrelationCounts, CorrelationName, Service } from "@khala/server/blackboard";
import type { ClusterOffsets } from "../client/cluster_offsets.ts";
import { catchUp, stableBounds, windowStart } from "../topics/catch_up.ts";
import type { LogReader } from "../topics/log_reader.ts";
import { LogTail, type Source } from "../topics/log_tail.ts";
import { type Correlations, keyOf, type Unconfirmed } from "./correlations.ts";
import { SingleFlight } from "./single_flight.ts";

export interface CountedLogs {
  readonly artifacts: string;
  readonly routerGroup: string;
  readonly processed: string;
  /** For each agent. */
  readonly tasks: readonly string[];
  readonly retries: readonly string[];
  /** How many records of each partition are counted. */
  readonly back: number;
}

/** Returns the progress of correlations. */
export interface CountedCorrelations extends Service {
  counts(names: readonly CorrelationName[]): Promise<CorrelationCounts[]>;
}

/** The router's committed offsets, by partition. */
type Routed = ReadonlyMap<number, number>;

/** The tailed logs. Concurrent callers share a check, which is undefined while a transaction is still open. */
interface Followed {
  readonly tail: LogTail;
  readonly polls: SingleFlight<Routed | undefined>;
}

/** How often a correlation that changes meanwhile is checked again. */
const MAX_POLLS = 3;

/**
 * Counts the tasks of correlations. Their logs have twice as many records as all others, and serve nothing else: they
 * are followed from the first query on.
 */
export function openCorrelationCounts(
  context: Context,
  offsets: Pick<ClusterOffsets, "committed" | "list">,
  openReader: () => Promise<LogReader>,
  logs: CountedLogs,
  correlations: Correlations,
): CountedCorrelations {
  let following: Promise<Followed> | undefined;

  async function follow(): Promise<Followed> {
    const topics: [topic: string, onRecord: Source["onRecord"]][] = [
      [logs.artifacts, correlations.onPublished],
      [logs.processed, correlations.onProcessed],
      ...logs.tasks.map((topic): (typeof topics)[number] => [topic, correlations.onTask]),
      ...logs.retries.map((topic): (typeof topics)[number] => [topic, correlations.onRetry]),
    ];
    const sources = await Promise.all(
      topics.map(async ([topic, onRecord]): Promise<Source> => {
        const bounds = await stableBounds(offsets, topic);
        return { topic, onRecord, from: bounds.map((each) => windowStart(topic, each, logs.back)) };
      }),
    );
    const tail = await LogTail.open(context, openReader, sources);
    try {
      await Promise.all(topics.map(([topic]) => catchUp(context, offsets, tail, topic)));
      return { tail, polls: new SingleFlight(() => poll(tail)) };
    } catch (error) {
      await tail.stop();
      throw error;
    }
  }

  /** Reads the router's offsets, and the records it has written by then. */
  async function poll(tail: LogTail): Promise<Routed | undefined> {
    const published = await catchUp(context, offsets, tail, logs.artifacts);
    const committed = (await offsets.committed([logs.routerGroup]))
      .get(logs.routerGroup)
      ?.get(logs.artifacts);
    const tasks = await Promise.all(logs.tasks.map((topic) => catchUp(context, offsets, tail, topic)));
    return [published, ...tasks].some(({ behind }) => behind) ? undefined : (committed ?? new Map());
  }

  return {
    async counts(names) {
      following ??= follow().catch((error: unknown) => {
        // The next call tries again.
        following = undefined;
        throw error;
      });
      const { polls } = await following;
      // Without agents nothing is routed.
      let unconfirmed: Unconfirmed = logs.tasks.length > 0 ? correlations.unconfirmed(names) : new Map();
      for (let count = 0; count < MAX_POLLS && unconfirmed.size > 0; count++) {
        const committed = await polls.run();
        if (!committed) break;
        unconfirmed = correlations.routed(unconfirmed, committed);
      }
      return correlations
        .counts(names, context.clock.now())
        .map((counts) =>
          unconfirmed.has(keyOf({ org: counts.org, name: counts.correlationId }))
            ? { ...counts, open: 1 }
            : counts,
        );
    },
    async stop() {
      // Callers have received the error.
      await (await following?.catch(() => undefined))?.tail.stop();
    },
  };
}
