import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import {
  type Artifact,
  type Context,
  type CorrelationCounts,
  type CorrelationName,
  type DeadLetter,
  type DeadLetterName,
  type DeadLetterPage,
  type DeadLetterQuery,
  ROUTER,
  type Service,
} from "@khala/server/blackboard";
import { partitionKey } from "../client/client_types.ts";
import type { ClusterOffsets } from "../client/cluster_offsets.ts";
import type { ResolvedSettings } from "../settings.ts";
import { catchUp, patiently, stableBounds, windowStart } from "../topics/catch_up.ts";
import { LogLookup } from "../topics/log_lookup.ts";
import { type LogRecord, openLogReader, type Position } from "../topics/log_reader.ts";
import { LogTail, type Source } from "../topics/log_tail.ts";
import { byIdKey } from "../topics/records.ts";
import type { TopicNames } from "../topics/topics.ts";
import { ArtifactIndex, BodyCache } from "./artifact_index.ts";
import { summaryOf } from "./artifact_summary.ts";
import { openCorrelationCounts } from "./correlation_counts.ts";
import { Correlations } from "./correlations.ts";
import { DeadLetters } from "./dead_letters.ts";
import { type RecentQuery, RecentWindow } from "./recent_window.ts";
import { SingleFlight } from "./single_flight.ts";

export interface ViewsOptions {
  readonly offsets: Pick<ClusterOffsets, "committed" | "list">;
  readonly settings: ResolvedSettings;
  readonly names: TopicNames;
  readonly agents: readonly string[];
}

/** The queries of a board, answered from memory and from the log. */
export interface Views extends Service {
  get(org: string, id: string): Promise<Artifact | undefined>;
  /** The known ones. */
  known(org: string, ids: readonly string[]): Promise<Artifact[]>;
  recent(query: RecentQuery): Promise<Artifact[]>;
  lag(): Promise<readonly PartitionLagJson[]>;
  correlations(names: readonly CorrelationName[]): Promise<readonly CorrelationCounts[]>;
  deadLetters(agent: string, query: DeadLetterQuery): Promise<DeadLetterPage>;
  deadLettersById(
    agent: string,
    orgs: readonly string[],
    ids: readonly string[],
  ): Promise<readonly DeadLetter[]>;
  /** Which dead letters are kept, by agent; the newest of them where there are more than a bound. */
  deadNames(): Promise<ReadonlyMap<string, readonly DeadLetterName[]>>;
  /** The newest version known here. */
  version(artifact: Pick<Artifact, "org_id" | "id">): number | undefined;
  /** This process's commits are visible at once. */
  wrote(artifact: Artifact, json?: string): void;
  /** The number of artifacts. */
  readonly size: number;
  /** The bytes of the newest versions of artifacts, by org. */
  storedBytes(): ReadonlyMap<string, number>;
}

const START_MS = 600_000;
/** The start waits for open commits, as no caller asks again. */
const START_OPEN_MS = 2_000;
const LOOK_BACK = 10_000;
/** The least window of a partition: few artifacts may share one by chance. */
const LEAST_WINDOW = 1_000;
const IDS_PER_ARTIFACT = 20;

/** Opens the views: resolves when everything committed by now has been read. */
export async function openViews(
  context: Context,
  { offsets, settings, names, agents }: ViewsOptions,
): Promise<Views> {
  const { kafka, indexWindow, indexBytes, partitions, retryDelaysMs, consumerProperties } = settings;
  const group = `${settings.prefix}views`;
  const bodies = new BodyCache(indexBytes);
  const lookup = new LogLookup(context, () =>
    openLogReader(context, kafka, group, {
      ...consumerProperties,
      "fetch.wait.max.ms": 5,
      "queued.min.messages": 100,
      "fetch.message.max.bytes": 65_536,
    }),
  );
  const fresh = (topic: string) => new SingleFlight(() => catchUp(context, offsets, tail, topic));

  const indexFresh = fresh(names.byId);
  const index = new ArtifactIndex(context, {
    topic: names.byId,
    bodies,
    lookup: (position) => lookup.record(position),
    fresh: async () => void (await indexFresh.run()),
  });
  const correlations = new Correlations({
    maxCorrelations: indexWindow,
    maxIds: indexWindow * IDS_PER_ARTIFACT,
  });
  const recent = new RecentWindow(indexWindow, correlations.onArtifact);
  const dead = new Map(
    [ROUTER, ...agents].map((agent) => {
      const topic = names.deadLetters(agent);
      const letters = fresh(topic);
      const log = {
        topic,
        fresh: async () => (await letters.run()).bounds[0]!,
        range: (from: Position, to: number) => lookup.range(from, to),
      };
      return [agent, new DeadLetters(agent, log)] as const;
    }),
  );

  const share = Math.ceil((indexWindow / partitions) * 2);
  const openTailReader = () => openLogReader(context, kafka, group, consumerProperties);
  const counted = openCorrelationCounts(
    context,
    offsets,
    openTailReader,
    {
      artifacts: names.artifacts,
      routerGroup: names.routerGroup,
      processed: names.processed,
      tasks: agents.map((agent) => names.tasks(agent)),
      retries: retryDelaysMs.map((ms) => names.retry(ms)),
      back: share,
    },
    correlations,
  );
  const window = Math.min(indexWindow, Math.max(LEAST_WINDOW, share));
  const patient = patiently(offsets);
  const windowStarts = (await stableBounds(patient, names.byId)).map(
    (bounds) => windowStart(names.byId, bounds, window).offset,
  );
  const onArtifact = (record: LogRecord) => {
    const isRecent = record.at >= (windowStarts[record.partition] ?? 0);
    const key = isRecent ? record.key?.toString() : undefined;
    const version = index.onRecord(record, key);
    if (key !== undefined && version !== undefined) recent.onRecord(record, key, version);
  };
  const follow: [topic: string, back: number, onRecord: Source["onRecord"]][] = [
    [names.byId, Number.POSITIVE_INFINITY, onArtifact],
    ...[...dead].map(([agent, letters]): (typeof follow)[number] => [
      names.deadLetters(agent),
      LOOK_BACK,
      (record) => {
        const { task } = letters.onRecord(record);
        if (task) correlations.task(task, "dead");
      },
    ]),
  ];
  const ends: Position[] = [];
  const sources: Source[] = [];
  for (const [topic, back, onRecord] of follow) {
    const bounds = await stableBounds(patient, topic);
    ends.push(...bounds.map(({ partition, end }) => ({ topic, partition, offset: end })));
    sources.push({ topic, onRecord, from: bounds.map((each) => windowStart(topic, each, back)) });
  }
  const tail = await LogTail.open(context, openTailReader, sources);
  try {
    await tail.reached(ends, START_MS);
    await Promise.all(follow.map(([topic]) => catchUp(context, patient, tail, topic, START_OPEN_MS)));
  } catch (error) {
    await tail.stop();
    throw error;
  }

  const readers = [
    { reader: ROUTER, topic: names.artifacts, group: names.routerGroup },
    ...agents.map((agent) => ({ reader: agent, topic: names.tasks(agent), group: names.agentGroup(agent) })),
  ];
  const deadNames = new SingleFlight(async () => {
    const lows = await offsets.list(
      [...dead.values()].map(({ topic }) => topic),
      "low",
    );
    return new Map(
      [...dead].map(([agent, letters]) => [agent, letters.names(lows.get(letters.topic)?.get(0) ?? 0)]),
    );
  });
  const lag = new SingleFlight(lagMeter(offsets, lookup, readers));
  return {
    get: (org, id) => index.get(byIdKey(org, id)),
    async known(org, ids) {
      const keys = ids.map((id) => byIdKey(org, id)).filter((key) => index.version(key) !== undefined);
      return (await Promise.all(keys.map((key) => index.get(key)))).filter((found) => found !== undefined);
    },
    async recent({ limit, ...query }) {
      const found: Artifact[] = [];
      const keys = recent.keys(query);
      while (found.length < limit && keys.length > 0) {
        const next = keys.splice(0, limit - found.length);
        const artifacts = await Promise.all(next.map((key) => index.get(key)));
        found.push(...artifacts.filter((artifact) => artifact !== undefined));
      }
      return found;
    },
    lag: () => lag.run(),
    correlations: (names) => counted.counts(names),
    async deadLetters(agent, query) {
      return (await dead.get(agent)?.list(query)) ?? { deadLetters: [] };
    },
    async deadLettersById(agent, orgs, ids) {
      return (await dead.get(agent)?.named(orgs, ids)) ?? [];
    },
    deadNames: () => deadNames.run(),
    version: ({ org_id, id }) => index.version(byIdKey(org_id, id)),
    wrote(artifact, json = JSON.stringify(artifact)) {
      index.wrote(artifact, json);
      recent.add(summaryOf(artifact), context.clock.now());
    },
    get size() {
      return index.size;
    },
    storedBytes: () => index.storedBytes,
    async stop() {
      await Promise.all([tail.stop(), counted.stop()]);
      await lookup.stop();
    },
  };
}

/** A group that reads a topic. */
interface LagReader {
  /** "router" or the agent's name. */
  readonly reader: string;
  readonly topic: string;
  readonly group: string;
}

/** Up to this distance records are counted exactly, so that markers alone are no lag. */
const EXACT = 32;

/**
 * The lag of readers, in records. Transaction markers have offsets of their own: the figure of a reader that is further
 * behind than a few records counts them too.
 */
function lagMeter(
  offsets: Pick<ClusterOffsets, "committed" | "list">,
  lookup: LogLookup,
  readers: readonly LagReader[],
): () => Promise<PartitionLagJson[]> {
  /** The last counts, by partition: nothing is read again while no offset moves. */
  const counted = new Map<string, { readonly from: number; readonly to: number; readonly records: number }>();

  async function recordsIn(from: Position, to: number): Promise<number> {
    const between = Math.max(0, to - from.offset);
    if (between === 0 || between > EXACT) return between;
    const last = counted.get(partitionKey(from));
    if (last?.from === from.offset && last.to === to) return last.records;
    const records = (await lookup.range(from, to)).length;
    counted.set(partitionKey(from), { from: from.offset, to, records });
    return records;
  }

  return async () => {
    const topics = readers.map(({ topic }) => topic);
    // The committed offset is asked for first: it never passes the end of the log.
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
