import { KhalaError } from "@khala/contracts";
import { type Context, sleep } from "@khala/server/blackboard";
import type { TopicPartition } from "./client_types.ts";
import { kafkaCode } from "./kafka_errors.ts";
import type { NativeConsumer } from "./native_consumer.ts";

type Member = Pick<NativeConsumer, "commit" | "committed" | "lost">;

/** While a group rebalances it takes no offsets; that is over sooner. */
const LIMIT_MS = 15_000;
const PAUSE_MS = 50;

/**
 * Commits offsets, without a transaction, and resolves when the group has them. The client tells nobody when it does not
 * take them, as that of a generation which is over: they would be missing until something else of the partition is
 * committed, however long that takes.
 */
export async function commitOffsets(
  { clock }: Pick<Context, "clock">,
  member: Member,
  offsets: readonly (TopicPartition & { readonly offset: string })[],
): Promise<void> {
  const positions = offsets.map(({ topic, partition, offset }) => ({
    topic,
    partition,
    offset: Number(offset),
  }));
  const deadline = clock.now() + LIMIT_MS;
  for (;;) {
    const error = await refusal(member, positions);
    if (!error) return;
    if (member.lost() || clock.now() >= deadline) throw error;
    await sleep(clock, PAUSE_MS);
  }
}

/** Why the group does not have these offsets; undefined if it does. */
async function refusal(
  member: Member,
  positions: readonly (TopicPartition & { readonly offset: number })[],
): Promise<Error | undefined> {
  try {
    await member.commit(positions);
    const found = await member.committed(positions);
    const missing = positions.find(
      ({ topic, partition, offset }) =>
        !found.some(
          (each) => each.topic === topic && each.partition === partition && (each.offset ?? -1) >= offset,
        ),
    );
    if (!missing) return undefined;
    return new KhalaError(
      "unavailable",
      `Kafka did not take offset ${missing.offset} of partition ${missing.partition} of ${missing.topic}, as while its readers change. Try again.`,
      { retry_after_ms: 500 },
    );
  } catch (error) {
    // Of the client: the coordinator moves, or does not answer.
    if (kafkaCode(error) === undefined) throw error;
    return error as Error;
  }
}
