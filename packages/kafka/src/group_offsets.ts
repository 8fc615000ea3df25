import { type Context, type Service, sleep } from "@khala/server/blackboard";
import type { KafkaSettings } from "./client.ts";
import { type GroupOffsetsFound, openPlainAdmin } from "./plain_admin.ts";

/** What groups have committed, by group, topic and partition. */
export type Committed = ReadonlyMap<string, ReadonlyMap<string, ReadonlyMap<number, number>>>;

/** The offsets of groups. */
export interface GroupOffsets extends Service {
  committed(groups: readonly string[]): Promise<Committed>;
}

const TRY_FOR_MS = 10_000;
const PAUSE_MS = 200;

/**
 * Opens the offsets of groups. The native client ends the process when it asks a broker that is not the coordinator any
 * more, so another one asks.
 */
export async function openGroupOffsets(context: Context, kafka: KafkaSettings): Promise<GroupOffsets> {
  const admin = await openPlainAdmin(kafka);
  const stopping = new AbortController();
  return {
    async committed(groups) {
      const deadline = context.clock.now() + TRY_FOR_MS;
      for (;;) {
        try {
          const found = await admin.listConsumerGroupOffsets({ groups });
          return new Map(found.map(({ groupId, topics }) => [groupId, offsetsOf(topics)]));
        } catch (error) {
          // A coordinator that loads, moves or is away comes back.
          if (stopping.signal.aborted || context.clock.now() >= deadline) throw error;
          await sleep(context.clock, PAUSE_MS, stopping.signal);
        }
      }
    },
    async stop() {
      stopping.abort();
      await admin.close();
    },
  };
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
