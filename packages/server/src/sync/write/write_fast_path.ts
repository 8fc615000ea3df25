import type { Statement } from "../../database/database.ts";
import { documentId, type Model } from "../model.ts";
import { partsSql } from "./write_parts.ts";
import { areDifferentDocuments, type DocumentWrite } from "./write_statement.ts";

/** A projection's checkpoint, moved in the same transaction as its writes. */
export interface CheckpointMove {
  readonly from: bigint;
  readonly to: bigint;
  /** The generation of the documents that the writes are based on. */
  readonly generation: bigint;
}

/** Whether writes are eligible for the fast path: documents for whole orgs, and no deletions. */
export function isFastPath(writes: readonly DocumentWrite[]): boolean {
  return writes.every(({ op, audience }) => op === "upsert" && audience === null);
}

/**
 * The fast path of `writeDocuments`: for writes without a change of access, whose versions are all newer.
 * Returns one row with the watermark before the first write, or no row: then nothing is written, and the slow path is needed.
 */
export function writeFastPath(
  model: Model,
  writes: readonly DocumentWrite[],
  inline: boolean,
  checkpoint: CheckpointMove,
): Statement {
  const values = [
    model.topic,
    writes.map((write) => write.docKey),
    writes.map((write) => write.docVersion),
    payloadArray(writes),
    writes.map((write) => write.org),
    // Empty arrays read as null for every write.
    writes.some((write) => write.trace) ? writes.map((write) => write.trace ?? null) : null,
    areDifferentDocuments(writes) ? null : whichAreNewest(writes),
    inline,
    checkpoint.from,
    checkpoint.to,
    checkpoint.generation,
  ];
  return { name: `sync_fast_path_${model.table}`, text: sqlOf(model), values };
}

function whichAreNewest(writes: readonly DocumentWrite[]): boolean[] {
  const newest = new Map(writes.map((write, i) => [documentId(write), i]));
  return writes.map((write, i) => newest.get(documentId(write)) === i);
}

const BYTEA = 17;

/** Encodes payloads as a binary bytea[], without escaping. */
function payloadArray(writes: readonly DocumentWrite[]): Buffer {
  const lengths = writes.map((write) => Buffer.byteLength(write.payload!));
  const array = Buffer.allocUnsafe(lengths.reduce((sum, length) => sum + 4 + length, 20));
  // One dimension, no nulls, element type, count, lower bound 1; then each element after its length.
  let at = 0;
  for (const head of [1, 0, BYTEA, writes.length, 1]) at = array.writeInt32BE(head, at);
  writes.forEach((write, i) => {
    at = array.writeInt32BE(lengths[i]!, at);
    at += array.write(write.payload!, at);
  });
  return array;
}

// Everything that writes waits for `plain`, which is there only if no write is special. Known documents are updated by a join
// and not by ON CONFLICT, which would compute the columns of declared orders and filters twice. The lock on the topic keeps
// others from adding a document meanwhile.
function sqlOf(model: Model): string {
  const table = `runtime.${model.table}`;
  const where = "WHERE EXISTS (SELECT FROM plain)";
  const parts = partsSql(model, { payload: "i.payload", count: "cardinality($2)", where });
  return `
WITH changes AS MATERIALIZED (
  SELECT i.doc_key, i.doc_version, i.payload, sha256(i.payload) AS payload_hash, i.org_id, i.trace, i.newest,
    (SELECT next_watermark FROM runtime.sync_topic_sequences WHERE topic = $1) + i.ord AS watermark,
    c.doc_key AS known,
    c.doc_version >= i.doc_version OR c.audience IS NOT NULL AS special${parts.columns}
  FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::boolean[])
    WITH ORDINALITY AS i(doc_key, doc_version, payload, org_id, trace, newest, ord)
  LEFT JOIN ${table} c ON c.org_id = i.org_id AND c.doc_key = i.doc_key
  ${parts.join}
), plain AS MATERIALIZED (
  SELECT min(watermark) - 1 AS before FROM changes HAVING bool_or(special) IS NOT true
), allocated AS (
  UPDATE runtime.sync_topic_sequences SET next_watermark = next_watermark + cardinality($2), parts_floor = ${parts.floor}
  WHERE topic = $1 AND EXISTS (SELECT FROM plain)
), journal AS (
  INSERT INTO runtime.sync_stream_events
    (topic, watermark, doc_key, doc_version, op, payload, payload_hash, payload_bytes, org_id, trace${parts.names})
  SELECT $1, watermark, doc_key, doc_version, 'upsert', CASE WHEN $8 THEN payload END, payload_hash, octet_length(payload),
    org_id, trace${parts.values}
  FROM changes ${where}
)${parts.insert}, updated AS (
  UPDATE ${table} t SET doc_version = n.doc_version, payload = n.payload, payload_hash = n.payload_hash, deleted = false,
    watermark = n.watermark, updated_at = clock_timestamp()
  FROM changes n
  WHERE n.newest IS NOT false AND n.known IS NOT NULL AND EXISTS (SELECT FROM plain)
    AND t.org_id = n.org_id AND t.doc_key = n.doc_key
), inserted AS (
  INSERT INTO ${table} (doc_key, doc_version, payload, payload_hash, org_id, watermark)
  SELECT doc_key, doc_version, payload, payload_hash, org_id, watermark
  FROM changes WHERE newest IS NOT false AND known IS NULL AND EXISTS (SELECT FROM plain)
)
-- The cast keeps the planner from moving the call: it runs once, and only if there is a row.
SELECT before, runtime.advance_checkpoint($1, $9, $10, $11)::text FROM plain`;
}
