import type { Context } from "@khala/server/blackboard";
import type { KafkaProducer } from "../client/client_types.ts";
import { waiting } from "../client/native_waits.ts";

/** A transaction that takes longer is ended by the brokers, and a record that takes longer by the client. */
export const PRODUCER_TIMEOUT_MS = 15_000;

/** Connects, or leaves nothing open. */
export async function connected(producer: KafkaProducer): Promise<KafkaProducer> {
  try {
    await waiting(() => producer.connect());
    return producer;
  } catch (error) {
    await disconnected(producer);
    throw error;
  }
}

/** Disconnects it; nobody may wait for its records. */
export function disconnected(producer: KafkaProducer): Promise<void> {
  return waiting(() => producer.disconnect());
}

/** Disconnects it once the call ends that is under way: until then that would wait as well, and hold a thread more. */
export function discard(
  { log }: Pick<Context, "log">,
  producer: KafkaProducer,
  call: Promise<unknown>,
): void {
  call
    .catch(() => {})
    .then(() => disconnected(producer))
    .catch((error: Error) => log.warn({ err: error.message }, "a producer did not disconnect in order"));
}
