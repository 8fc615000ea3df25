import { randomUUID } from "node:crypto";
import { kafkaHere, sharedKafka } from "../kafka/kafka.ts";

/** A backend of the blackboard. */
export type Backend = "Postgres" | "Kafka";

/** The backends of this run. Tests of a promise of both run on each. */
export const BACKENDS: readonly Backend[] = kafkaHere() ? ["Postgres", "Kafka"] : ["Postgres"];

/** Settings for servers on a backend. On Kafka they get topics of their own on the shared broker. */
export async function backendSettings(backend: Backend): Promise<Record<string, string>> {
  if (backend === "Postgres") return {};
  const prefix = `t${randomUUID().slice(0, 8)}.`;
  return {
    KAFKA_BOOTSTRAP_SERVERS: await sharedKafka(),
    KAFKA_TOPIC_PREFIX: prefix,
    // Transactional ids contain it, and the broker is shared with other tests.
    KAFKA_CLIENT_ID: prefix,
    KAFKA_PARTITIONS: "2",
  };
}
