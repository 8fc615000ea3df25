import { murmur2 } from "@khala/contracts";
import type { Outgoing } from "../topics/records.ts";
import type { KafkaProducer, NativeHeader, NativeProducer, NewRecord } from "./client_types.ts";

/** Turns off reports of delivered records. */
export const WITHOUT_REPORTS = { "delivery.report.only.error": true };

const ANY_PARTITION = -1;

/**
 * The producer behind a connected transactional one. A report for each record is much of the cost of writing
 * it, and has no use here: a commit waits for every record, and fails if one of them was not delivered.
 */
export function nativeOf(producer: KafkaProducer): NativeProducer {
  const native = producer._getInternalClient();
  // The client's own listener knows only records that it sent itself.
  native.removeAllListeners("delivery-report");
  return native;
}

/**
 * The partition of a record without one, by its key among the topic's original partitions: even if partitions were
 * added since, a key keeps its partition.
 */
export function partitionFor(key: Buffer | null, partitions: number): number {
  return key ? (murmur2(key) & 0x7fffffff) % partitions : ANY_PARTITION;
}

/** Produces records. Throws at the first that the client refuses; earlier ones are part of the transaction. */
export function produceAll(native: NativeProducer, records: readonly Outgoing[], partitions: number): void {
  for (const { topic, record } of records) {
    const { value, key: text = null, partition, timestamp = 0, headers } = record;
    // It ends a string at its first NUL.
    const key = typeof text === "string" ? Buffer.from(text) : text;
    native.produce(
      topic,
      partition ?? partitionFor(key, partitions),
      typeof value === "string" ? Buffer.from(value) : value,
      key,
      Number(timestamp),
      undefined,
      headers && headerList(headers),
    );
  }
}

function headerList(headers: NonNullable<NewRecord["headers"]>): NativeHeader[] {
  const list: NativeHeader[] = [];
  for (const name in headers) {
    const value = headers[name]!;
    if (typeof value === "string" || Buffer.isBuffer(value)) list.push({ [name]: value });
    else for (const each of value) list.push({ [name]: each });
  }
  return list;
}
