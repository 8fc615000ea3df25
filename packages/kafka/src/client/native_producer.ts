import { murmur2 } from "@khala/contracts";
import type { Outgoing } from "../topics/records.ts";
import type { KafkaProducer, NativeHeader, NativeProducer, NewRecord } from "./client_types.ts";

/** So that nothing is reported of a record that was delivered. */
export const WITHOUT_REPORTS = { "delivery.report.only.error": true };

const ANY_PARTITION = -1;

/**
 * The producer behind a transactional one that is connected. A report for each record is much of what it costs to write
 * it, and tells nothing here: a commit waits for every record, and fails if one of them was not delivered.
 */
export function nativeOf(producer: KafkaProducer): NativeProducer {
  const native = producer._getInternalClient();
  // The client's own listener knows only records that it has sent itself.
  native.removeAllListeners("delivery-report");
  return native;
}

/**
 * The partition of a record that names none, by its key among those that its topic was made with: somebody may have added
 * others since, and a key stays where it was.
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
