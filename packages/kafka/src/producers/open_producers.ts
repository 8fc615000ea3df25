import type { Context } from "@khala/server/blackboard";
import type { KafkaClient } from "../client/client.ts";
import type { ResolvedSettings } from "../settings.ts";
import { largestTask } from "../topics/topics.ts";
import { plainProducer } from "./plain_producer.ts";
import type { Producers } from "./producers.ts";
import { transactionalProducers } from "./transactional_producers.ts";

/**
 * Idle connections are closed after this time, and opened again. This makes the client ask again which broker
 * coordinates a group when the coordinator is lost while offsets are sent: without it that call never ends.
 */
const IDLE_MS = 5_000;

/** Opens the producers of a process; they connect at their first use. */
export function openProducers(
  context: Pick<Context, "clock" | "log" | "random">,
  client: KafkaClient,
  settings: ResolvedSettings,
): Producers {
  const properties = {
    "linger.ms": 1,
    "connections.max.idle.ms": IDLE_MS,
    ...settings.producerProperties,
    "message.max.bytes": largestTask(settings) + 131_072,
  };
  const { transactions, partitions } = settings;
  return transactions
    ? transactionalProducers(context, client, settings, properties)
    : plainProducer(context, client, properties, partitions);
}
