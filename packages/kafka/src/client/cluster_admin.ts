import { KhalaError } from "@khala/contracts";
import { type KafkaSettings, openKafkaClient } from "./client.ts";
import type { KafkaAdmin } from "./client_types.ts";
import { kafkaCode } from "./kafka_errors.ts";

const TIMEOUT_MS = 10_000;

/** Uses the administration of a cluster on a connection of its own. Throws, and says why, if no broker lets it in. */
export async function withAdmin<T>(kafka: KafkaSettings, use: (admin: KafkaAdmin) => Promise<T>): Promise<T> {
  let complaint: string | undefined;
  const log: KafkaSettings["log"] = (level, message) => {
    if (level === "error") complaint = message;
    kafka.log?.(level, message);
  };
  const admin = (await openKafkaClient({ ...kafka, log })).admin();
  await admin.connect();
  try {
    return await use(admin);
  } catch (error) {
    // Those below zero are the client's own: no broker has answered.
    throw (kafkaCode(error) ?? 0) < 0 ? unreached(error as Error, complaint) : error;
  } finally {
    await admin.disconnect();
  }
}

/** The topics that whoever has these settings may see. */
export function listTopics(kafka: KafkaSettings): Promise<readonly string[]> {
  return withAdmin(kafka, (admin) => admin.listTopics({ timeout: TIMEOUT_MS }));
}

/** The client's error does not say why, such as a certificate or a password that is refused. What it logs does. */
function unreached(error: Error, complaint = error.message): KhalaError {
  const reason = complaint.replace(/^\[thrd:.*?\]: /, "");
  return new KhalaError(
    "unavailable",
    `Kafka cannot be reached: ${reason}. Look at KAFKA_BOOTSTRAP_SERVERS, the settings KAFKA_SSL_* and KAFKA_SASL_*, and the brokers.`,
  );
}
