import { randomUUID } from "node:crypto";
import { kafkaHere, sharedKafka } from "../kafka/kafka.ts";

/** What carries a board. */
export type Engine = "Postgres" | "Kafka";

/** Those that this run has: what is promised on either is tested on each of them. */
export const ENGINES: readonly Engine[] = kafkaHere() ? ["Postgres", "Kafka"] : ["Postgres"];

/** Settings for the servers of a board on an engine; on Kafka it has topics of its own on the broker that files share. */
export async function engineSettings(engine: Engine): Promise<Record<string, string>> {
  if (engine === "Postgres") return {};
  const prefix = `t${randomUUID().slice(0, 8)}.`;
  return {
    KAFKA_BOOTSTRAP_SERVERS: await sharedKafka(),
    KAFKA_TOPIC_PREFIX: prefix,
    // Transactional ids are made of it, and the broker is shared with other tests.
    KAFKA_CLIENT_ID: prefix,
    KAFKA_PARTITIONS: "2",
  };
}
