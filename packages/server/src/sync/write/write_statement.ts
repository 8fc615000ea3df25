import type { Statement } from "../../database/database.ts";
import { documentId, type Model } from "../model.ts";
import { partsSql } from "./write_parts.ts";

/** A new version of a document, ready to be stored. */
export interface DocumentWrite {
  readonly docKey: string;
  readonly docVersion: bigint;
  readonly op: "upsert" | "delete";
  /** Canonical JSON; undefined on delete. */
  readonly payload?: string;
  readonly org: string;
  readonly audience: readonly string[] | null;
  /** W3C traceparent of the change. */
  readonly trace?: string | null;
  /** When the document expires, RFC 3339; null or none: never. */
  readonly expiresAt?: string | null;
}

/** The result of a write: the watermark, or null for a version that is not newer. */
export interface WrittenRow {
  readonly ord: number;
  readonly watermark: bigint | null;
}

/**
 * For the rest of the transaction. The statements that write documents join a batch with the read model: a plan made while that
 * was small would scan all of it for every batch, and making a new plan for each takes longer than running it.
 */
const PLANNER =
  "set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)";

/** Locks the topic's row, so that the next statement sees all earlier commits. */
export function lockTopic(topic: string): Statement {
  const text = `SELECT ${PLANNER} FROM runtime.sync_topic_sequences WHERE topic = $1 FOR UPDATE`;
  return { name: "sync_lock_topic", text, values: [topic] };
}

/** Locks the checkpoint's row, then the topic's. All code takes them in this order. */
export function lockProjection(topic: string): Statement {
  const text = `SELECT ${PLANNER} FROM runtime.sync_checkpoints c CROSS JOIN runtime.sync_topic_sequences s
    WHERE c.topic = $1 AND s.topic = $1 FOR UPDATE`;
  return { name: "sync_lock_projection", text, values: [topic] };
}

/**
 * The slow path: read model, watermarks and journal of many writes in one statement, including changes of access. Versions of a document must rise within
 * the batch and share one access; `waves` ensures that. Payloads are sent as one buffer and split in SQL.
 */
export function writeDocuments(model: Model, writes: readonly DocumentWrite[], inline: boolean): Statement {
  const newest = new Map(writes.map((write, i) => [documentId(write), i]));
  const lengths = writes.map((write) => (write.payload === undefined ? 0 : Buffer.byteLength(write.payload)));
  const starts: number[] = [];
  let total = 0;
  for (const length of lengths) {
    starts.push(total + 1);
    total += length;
  }
  const payloads = Buffer.allocUnsafe(total);
  writes.forEach((write, i) => {
    if (write.payload !== undefined) payloads.write(write.payload, starts[i]! - 1);
  });
  return {
    name: `sync_write_${model.table}`,
    text: sqlOf(model),
    values: [
      model.topic,
      payloads,
      writes.map((w) => w.docKey),
      writes.map((w) => w.docVersion),
      writes.map((w) => w.op),
      writes.map((w) => w.org),
      writes.map((w) => (w.audience ? arrayLiteral(w.audience) : null)),
      starts,
      lengths,
      writes.map((w, i) => newest.get(documentId(w)) === i),
      writes.map((w) => w.trace ?? null),
      inline,
    ],
  };
}

function arrayLiteral(items: readonly string[]): string {
  return `{${items.map((item) => `"${item.replace(/["\\]/g, "\\$&")}"`).join(",")}}`;
}

/** Splits writes so that within a wave the versions of a document rise and share one access. */
export function waves(writes: readonly DocumentWrite[]): readonly (readonly DocumentWrite[])[] {
  if (areDifferentDocuments(writes)) return writes.length > 0 ? [writes] : [];
  const result: DocumentWrite[][] = [];
  const place = new Map<string, { wave: number; write: DocumentWrite }>();
  for (const write of writes) {
    const id = documentId(write);
    const before = place.get(id);
    const joins = before && write.docVersion > before.write.docVersion && sameAccess(write, before.write);
    const wave = before ? (joins ? before.wave : before.wave + 1) : 0;
    result[wave] ??= [];
    result[wave].push(write);
    place.set(id, { wave, write });
  }
  return result;
}

/** Whether no document is written twice, which is the usual case. */
export function areDifferentDocuments(writes: readonly DocumentWrite[]): boolean {
  const ids = new Set<string>();
  for (const write of writes) ids.add(documentId(write));
  return ids.size === writes.length;
}

function sameAccess(a: DocumentWrite, b: DocumentWrite): boolean {
  if (a.op !== "upsert" || b.op !== "upsert") return false;
  return JSON.stringify(a.audience) === JSON.stringify(b.audience);
}

// Part 1 of a write is the write; part 0 is the tombstone for viewers who could see the document before and cannot
// any more. It goes first, so that a commit never sends a viewer two updates of a document in the wrong order.
function sqlOf(model: Model): string {
  const table = `runtime.${model.table}`;
  const payload = "CASE WHEN i.op = 'upsert' THEN substring($2::bytea FROM i.start FOR i.length) END";
  const parts = partsSql(model, { payload, count: "(SELECT count(*) FROM changes)", where: "" });
  // A tombstone for those who lose access is for the parts that the document was in.
  const chosen = parts.columns && ", CASE part WHEN 1 THEN parts ELSE '{}' END AS parts, before_parts";
  return `
WITH changes AS MATERIALIZED (
  SELECT ord, part, org_id, doc_key, doc_version, newest, trace,
    row_number() OVER (ORDER BY ord, part)
      + (SELECT next_watermark FROM runtime.sync_topic_sequences WHERE topic = $1) AS watermark,
    CASE part WHEN 1 THEN op ELSE 'delete' END AS op,
    CASE part WHEN 1 THEN payload END AS payload,
    CASE part WHEN 1 THEN sha256(payload) END AS payload_hash,
    CASE part WHEN 1 THEN length ELSE 0 END AS length,
    CASE WHEN part = 1 THEN audience
         WHEN old_audience IS NOT NULL THEN ARRAY(SELECT s FROM unnest(old_audience) s WHERE s <> ALL (audience))
    END AS audience,
    CASE WHEN part = 0 AND old_audience IS NULL THEN audience END AS hidden_from${chosen}
  FROM (
    SELECT newer.*, generate_series(CASE
      WHEN visible AND audience IS NOT NULL AND (old_audience IS NULL OR NOT old_audience <@ audience) THEN 0
      ELSE 1 END, 1) AS part
    FROM (
      SELECT i.ord::int, i.doc_key, i.doc_version, i.op, i.newest, i.trace, i.length,
        ${payload} AS payload,
        i.org_id,
        CASE WHEN i.op = 'delete' AND c.doc_key IS NOT NULL THEN c.audience ELSE i.audience::text[] END AS audience,
        NOT c.deleted AS visible, c.audience AS old_audience${parts.columns}
      FROM unnest($3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::int[], $9::int[], $10::boolean[], $11::text[])
        WITH ORDINALITY AS i(doc_key, doc_version, op, org_id, audience, start, length, newest, trace, ord)
      LEFT JOIN ${table} c ON c.org_id = i.org_id AND c.doc_key = i.doc_key
      ${parts.join}
      WHERE c.doc_version IS NULL OR i.doc_version > c.doc_version
      OFFSET 0 -- each payload is cut out once, however often it is used above
    ) newer
  ) parts
), allocated AS (
  UPDATE runtime.sync_topic_sequences SET next_watermark = next_watermark + (SELECT count(*) FROM changes), parts_floor = ${parts.floor}
  WHERE topic = $1
), journal AS (
  INSERT INTO runtime.sync_stream_events
    (topic, watermark, doc_key, doc_version, op, payload, payload_hash, payload_bytes, org_id, audience, hidden_from, trace${parts.names})
  SELECT $1, watermark, doc_key, doc_version, op, CASE WHEN $12 THEN payload END, payload_hash, length, org_id, audience,
    hidden_from, trace${parts.values}
  FROM changes
)${parts.insert}, viewers AS (
  INSERT INTO runtime.sync_stream_viewers (topic, org_id, subject, watermark)
  SELECT $1, org_id, unnest(audience), watermark FROM changes WHERE audience IS NOT NULL
), documents AS (
  INSERT INTO ${table} AS t (doc_key, doc_version, payload, payload_hash, org_id, audience, deleted, watermark)
  SELECT doc_key, doc_version, payload, payload_hash, org_id, audience, op = 'delete', watermark
  FROM changes WHERE part = 1 AND newest
  ON CONFLICT (org_id, doc_key) DO UPDATE SET doc_version = excluded.doc_version, payload = excluded.payload,
    payload_hash = excluded.payload_hash, audience = excluded.audience,
    deleted = excluded.deleted, watermark = excluded.watermark, updated_at = excluded.updated_at
  WHERE t.doc_version < excluded.doc_version
)
SELECT ord, watermark FROM changes WHERE part = 1`;
}
