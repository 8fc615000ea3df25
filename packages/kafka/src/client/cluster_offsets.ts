import { KhalaError } from "@khala/contracts";
import { type Context, type Service, sleep } from "@khala/server/blackboard";
import type { KafkaSettings } from "./client.ts";
import type { TopicPartition } from "./client_types.ts";
import { type GroupOffsetsFound, openPlainAdmin, type PlainAdmin } from "./plain_admin.ts";

/** The committed offsets of groups, by group, topic and partition. */
export type Committed = ReadonlyMap<string, ReadonlyMap<string, ReadonlyMap<number, number>>>;

/**
 * The kind of offset of a partition: the first left in the log, behind the last decided record, behind the last, or
 * the first at or after a time, -1 if there is none.
 */
export type OffsetAt = "low" | "stable" | "high" | number;

/** The same kind for all partitions, or a time for each. */
export type OffsetsAt = OffsetAt | ((partition: number) => number);

/** The offsets that brokers know of, and the groups that commit them. */
export interface ClusterOffsets extends Service {
  /**
   * With `stable`, the offsets of these partitions once no open transaction could change them. They must be named: without
   * it the call finds only earlier commits, and not that the first commit of a partition is about to be decided.
   * `patient` is for callers that cannot retry, like callers of `stable`.
   */
  committed(
    groups: readonly string[],
    options?: { readonly stable?: readonly TopicPartition[]; readonly patient?: boolean },
  ): Promise<Committed>;
  /** By topic and partition. `patient` is as above. */
  list(
    topics: readonly string[],
    at: OffsetsAt,
    options?: { readonly patient?: boolean },
  ): Promise<ReadonlyMap<string, ReadonlyMap<number, number>>>;
  /** Removes the member with this client id from a group, which would wait for it until its session times out. */
  removeMember(group: string, clientId: string): Promise<void>;
}

/** For reads that callers can retry. */
const BRIEFLY_MS = 3_000;
/** For reads that must succeed: a lost broker is replaced within this time. */
const PATIENTLY_MS = 15_000;
const PAUSE_MS = 100;
const EARLIEST = -2n;
const LATEST = -1n;
const READ_UNCOMMITTED = 0;
const READ_COMMITTED = 1;

/**
 * Opens the offsets of a cluster. The native client is not used: for offsets of groups it ends the process when the
 * coordinator has moved, for topics it retries a lost broker without a pause, and each of its calls
 * holds one of the few threads that transactions need.
 */
export async function openClusterOffsets(context: Context, kafka: KafkaSettings): Promise<ClusterOffsets> {
  const { clock } = context;
  const admin = await openPlainAdmin(kafka);
  const stopping = new AbortController();
  const counts = new Map<string, number>();

  /** A leader or coordinator that loads, moves or is away comes back. */
  async function retry<T>(what: string, tryMs: number, ask: () => Promise<T>): Promise<T> {
    const deadline = clock.now() + tryMs;
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        if (stopping.signal.aborted || clock.now() >= deadline)
          throw new KhalaError(
            "unavailable",
            `Kafka did not return ${what}: ${(error as Error).message} Try again.`,
            { retry_after_ms: 1_000 },
            { cause: error },
          );
        await sleep(clock, PAUSE_MS, stopping.signal);
      }
    }
  }

  return {
    committed: (groups, { stable, patient = stable !== undefined } = {}) =>
      retry("the committed offsets of groups", patient ? PATIENTLY_MS : BRIEFLY_MS, async () => {
        const found = await admin.listConsumerGroupOffsets({
          groups: stable ? groups.map((groupId) => ({ groupId, topics: byTopic(stable) })) : groups,
          requireStable: stable !== undefined,
        });
        return new Map(found.map(({ groupId, topics }) => [groupId, offsetsOf(topics)]));
      }),
    list: (topics, at, { patient = false } = {}) =>
      retry("the ends of its topics", patient ? PATIENTLY_MS : BRIEFLY_MS, async () => {
        await count(admin, counts, topics);
        const found = await admin.listOffsets({
          topics: topics.map((name) => ({
            name,
            partitions: Array.from({ length: counts.get(name)! }, (_, partitionIndex) => ({
              partitionIndex,
              timestamp: timestampOf(typeof at === "function" ? at(partitionIndex) : at),
            })),
          })),
          isolationLevel: at === "stable" ? READ_COMMITTED : READ_UNCOMMITTED,
        });
        return new Map(
          found.map(({ name, partitions }) => [
            name,
            new Map(partitions.map(({ partitionIndex, offset }) => [partitionIndex, Number(offset)])),
          ]),
        );
      }),
    removeMember: (groupId, clientId) =>
      retry("the members of its groups", BRIEFLY_MS, async () => {
        const group = (await admin.describeGroups({ groups: [groupId] })).get(groupId);
        const members = [...(group?.members.values() ?? [])]
          .filter((member) => member.clientId === clientId)
          .map(({ id }) => ({ memberId: id, reason: "it has ended" }));
        if (members.length > 0) await admin.removeMembersFromConsumerGroup({ groupId, members });
      }),
    async stop() {
      stopping.abort();
      await admin.close();
    },
  };
}

/** Looks up the number of partitions of topics, once each: it never changes. */
async function count(admin: PlainAdmin, counts: Map<string, number>, topics: readonly string[]) {
  const unknown = topics.filter((topic) => !counts.has(topic));
  if (unknown.length === 0) return;
  const found = await admin.metadata({ topics: unknown });
  for (const [name, { partitionsCount }] of found.topics) counts.set(name, partitionsCount);
}

function byTopic(partitions: readonly TopicPartition[]) {
  return [...Map.groupBy(partitions, ({ topic }) => topic)].map(([name, own]) => ({
    name,
    partitionIndexes: own.map(({ partition }) => partition),
  }));
}

function timestampOf(at: OffsetAt): bigint {
  if (typeof at === "number") return BigInt(at);
  return at === "low" ? EARLIEST : LATEST;
}

function offsetsOf(topics: GroupOffsetsFound["topics"]): Map<string, Map<number, number>> {
  return new Map(
    topics.map(({ name, partitions }) => [
      name,
      new Map(
        partitions.map(({ partitionIndex, committedOffset }) => [partitionIndex, Number(committedOffset)]),
      ),
    ]),
  );
}
