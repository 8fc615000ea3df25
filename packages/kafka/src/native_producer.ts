import type { KafkaProducer, NativeHeader, NativeProducer, NewRecord } from "./client_types.ts";
import type { Outgoing } from "./records.ts";

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

/** Hands records to the client. Throws what it refuses; those before it are part of the transaction. */
export function handOver(native: NativeProducer, records: readonly Outgoing[]): void {
  for (const { topic, record } of records) {
    const { value, key = null, partition = ANY_PARTITION, timestamp = 0, headers } = record;
    native.produce(
      topic,
      partition,
      typeof value === "string" ? Buffer.from(value) : value,
      // It ends a string at its first NUL.
      typeof key === "string" ? Buffer.from(key) : key,
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
