import { IsolationLevel, type KafkaAdmin } from "./client_types.ts";
import type { Position } from "./log_reader.ts";

const TIMEOUT_MS = 10_000;

/** The bounds of a partition. */
export interface Bounds {
  readonly partition: number;
  /** The first that is left. */
  readonly low: number;
  /** Behind the last. */
  readonly end: number;
}

/** The bounds of a topic's partitions up to the last stable offsets: before them everything can be read. */
export function stableBounds(admin: KafkaAdmin, topic: string): Promise<Bounds[]> {
  return boundsOf(admin, topic, IsolationLevel.readCommitted);
}

/** The bounds up to the high watermarks: what open transactions hold back lies below them. */
export function highBounds(admin: KafkaAdmin, topic: string): Promise<Bounds[]> {
  return boundsOf(admin, topic, IsolationLevel.readUncommitted);
}

/** The high watermarks by partition. */
export async function highWatermarks(admin: KafkaAdmin, topic: string): Promise<ReadonlyMap<number, number>> {
  return new Map((await highBounds(admin, topic)).map(({ partition, end }) => [partition, end]));
}

/** The ends as positions. */
export function endsOf(topic: string, bounds: readonly Bounds[]): Position[] {
  return bounds.map(({ partition, end }) => ({ topic, partition, offset: end }));
}

async function boundsOf(
  admin: KafkaAdmin,
  topic: string,
  isolationLevel: (typeof IsolationLevel)[keyof typeof IsolationLevel],
): Promise<Bounds[]> {
  // The client writes into the options, so that they cannot be shared.
  const found = await admin.fetchTopicOffsets(topic, { isolationLevel, timeout: TIMEOUT_MS });
  return found.map(({ partition, low, high }) => ({ partition, low: Number(low), end: Number(high) }));
}
