import type { Board, Context, Service } from "@khala/server/blackboard";
import type { ClusterOffsets } from "../client/cluster_offsets.ts";
import { stableBounds, windowStart } from "../topics/catch_up.ts";
import { openLogReader } from "../topics/log_reader.ts";
import { LogTail, type Source } from "../topics/log_tail.ts";
import { HEADER, headerText } from "../topics/record_headers.ts";
import { SingleFlight } from "./single_flight.ts";
import type { ViewsOptions } from "./views.ts";

/** Counts whose tasks wait. */
export interface TaskCounts extends Service, Pick<Board, "waiting"> {}

interface OpenTask {
  readonly offset: number;
  readonly org: string;
}

/** The tasks behind the committed offset, by topic and partition. */
type OpenTasks = ReadonlyMap<string, OpenTask[][]>;

interface Followed {
  readonly tail: LogTail;
  readonly open: OpenTasks;
}

const TIMEOUT_MS = 10_000;
/** The newest tasks of a partition are counted, up to here; together they are beyond what any limit asks for. */
const MAX_OPEN = 125_000;
/** Reading every task again is worth it only while somebody asks: with a backlog, publishers do so once a second. */
const UNUSED_MS = 60_000;

/**
 * Follows the tasks of all agents while somebody asks. Those behind the committed offset are open: also the running ones,
 * and those settled before an earlier one of their partition.
 */
export function openTaskCounts(
  context: Context,
  { offsets, settings, names, agents }: ViewsOptions,
  { maxOpen = MAX_OPEN }: { readonly maxOpen?: number } = {},
): TaskCounts {
  const readers = agents.map((agent) => ({
    agent,
    topic: names.tasks(agent),
    group: names.agentGroup(agent),
  }));
  const topics = readers.map(({ topic }) => topic);
  let following: Promise<Followed> | undefined;
  let cancelUnused: (() => void) | undefined;

  /** The committed offsets by topic and partition. */
  async function committed(known: Pick<ClusterOffsets, "committed">) {
    const found = await known.committed(readers.map(({ group }) => group));
    return new Map(readers.map(({ topic, group }) => [topic, found.get(group)?.get(topic)]));
  }

  async function follow(): Promise<Followed> {
    const done = await committed(offsets);
    const open = new Map(topics.map((topic): [string, OpenTask[][]] => [topic, []]));
    const sources = await Promise.all(
      topics.map(async (topic): Promise<Source> => {
        const from = (await stableBounds(offsets, topic)).map((bounds) => {
          const { offset } = windowStart(topic, bounds, maxOpen);
          const { partition } = bounds;
          return { topic, partition, offset: Math.max(offset, done.get(topic)?.get(partition) ?? 0) };
        });
        const partitions = open.get(topic)!;
        for (const { partition } of from) partitions[partition] = [];
        return {
          topic,
          from,
          onRecord(record) {
            const org = headerText(record, HEADER.org);
            const list = partitions[record.partition];
            if (org === undefined || !list) return;
            list.push({ offset: record.at, org });
            if (list.length > maxOpen) list.splice(0, Math.ceil(maxOpen / 10));
          },
        };
      }),
    );
    const openReader = () =>
      openLogReader(context, settings.kafka, `${settings.prefix}views`, settings.consumerProperties);
    return { tail: await LogTail.open(context, openReader, sources), open };
  }

  /** The open tasks by org and agent. */
  const count = new SingleFlight(async () => {
    following ??= follow().catch((error: unknown) => {
      // The next call tries again.
      following = undefined;
      throw error;
    });
    const { tail, open } = await following;
    const ends = [...(await offsets.list(topics, "stable"))].flatMap(([topic, partitions]) =>
      [...partitions].map(([partition, offset]) => ({ topic, partition, offset })),
    );
    await tail.reached(ends, TIMEOUT_MS);
    const done = await committed(offsets);
    const counts = new Map<string, Map<string, number>>();
    for (const { agent, topic } of readers)
      for (const [partition, list] of open.get(topic)!.entries()) {
        const first = done.get(topic)?.get(partition) ?? 0;
        const settled = list.findIndex(({ offset }) => offset >= first);
        list.splice(0, settled < 0 ? list.length : settled);
        for (const { org } of list) {
          const byAgent = counts.get(org) ?? new Map<string, number>();
          counts.set(org, byAgent.set(agent, (byAgent.get(agent) ?? 0) + 1));
        }
      }
    return counts;
  });

  async function unfollow(): Promise<void> {
    cancelUnused?.();
    const followed = following;
    following = undefined;
    // Callers have received the error.
    await (await followed?.catch(() => undefined))?.tail.stop();
  }

  return {
    async waiting(org) {
      if (topics.length === 0) return new Map();
      cancelUnused?.();
      cancelUnused = context.clock.after(UNUSED_MS, () => void unfollow());
      return (await count.run()).get(org) ?? new Map();
    },
    stop: unfollow,
  };
}
