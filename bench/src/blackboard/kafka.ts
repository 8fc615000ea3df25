import { findKafka } from "@khala/test-support/kafka/binary";
import { findKafkaClient } from "@khala/test-support/kafka/client";
import { type KafkaServer, startKafkaServer } from "@khala/test-support/kafka/server";

/** Starts a broker, or says why there can be none. */
export async function startKafka(): Promise<KafkaServer | string> {
  const client = await findKafkaClient();
  if (!client) return "its native client is not built: run `npm ci` in packages/kafka";
  const binary = await findKafka();
  if (!binary) return "there is no Kafka on this machine: install one, or start Docker";
  // Without the flags by which tests start quickly: a broker that works for minutes is worth compiling well.
  return await startKafkaServer(binary, { jvm: ["-Xmx1g"] });
}
