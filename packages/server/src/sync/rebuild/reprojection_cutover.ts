import { expiryOf, hasExpired, storeExpiries } from "../expiry.ts";
import type { Model } from "../model.ts";
import type { DocumentName } from "../read/read_models.ts";
import { type DocumentWrite, lockTopic, writeDocuments } from "../write/write_statement.ts";
import type { Connection } from "./reprojection_shadow.ts";

/** A stretch of documents in the order of their orgs and keys, `after` not included. */
export interface DocumentRange {
  readonly after: DocumentName;
  readonly upTo: DocumentName;
  readonly documents: bigint;
}

/** The limits of one cutover in memory, and in one transaction. */
export const BATCH = { documents: 1_000, bytes: 8 << 20 };

/** The next documents of the live and the rebuilt model together; undefined after the last. */
export async function nextRange(
  tx: Connection,
  model: Model,
  after: DocumentName,
): Promise<DocumentRange | undefined> {
  const [last] = await tx.query<DocumentName & { documents: bigint }>({
    text: `SELECT org_id AS org, doc_key AS "docKey", n AS documents FROM (
        SELECT org_id, doc_key, sum(bytes) OVER w AS total, row_number() OVER w AS n FROM (
          SELECT org_id, doc_key, max(bytes) AS bytes FROM (
            (SELECT org_id, doc_key, coalesce(octet_length(payload), 0) AS bytes FROM runtime.sync_rebuilt_documents
             WHERE topic = $1 AND (org_id, doc_key) > ($2, $3) ORDER BY org_id, doc_key LIMIT $4)
            UNION ALL
            (SELECT org_id, doc_key, 0 FROM runtime.${model.table} WHERE (org_id, doc_key) > ($2, $3)
             ORDER BY org_id, doc_key LIMIT $4)
          ) both_models GROUP BY org_id, doc_key
        ) keys WINDOW w AS (ORDER BY org_id, doc_key)
      ) sized WHERE n = 1 OR (n <= $4 AND total <= $5) ORDER BY n DESC LIMIT 1`,
    values: [model.topic, after.org, after.docKey, BATCH.documents, BATCH.bytes],
  });
  return last && { after, upTo: last, documents: last.documents };
}

/**
 * Makes the live documents of a range, or these documents, equal to the rebuilt ones, the way every writer does: a new
 * version, a watermark and a journal row for each that differs, and nothing for the rest. Returns how many differed.
 */
export async function emitDiffering(
  tx: Connection,
  model: Model,
  which: DocumentRange | readonly DocumentName[],
  inline: boolean,
): Promise<number> {
  const found = await differing(tx, model, which);
  if (found.length === 0) return 0;
  // Only now keep writers out, and read again: what they wrote before is seen, what they write after is newer.
  await tx.query(lockTopic(model.topic));
  const writes = await differing(tx, model, which);
  if (writes.length > 0) await tx.query(writeDocuments(model, writes, inline));
  const expiries = storeExpiries(model, writes);
  if (expiries) await tx.query(expiries);
  return writes.length;
}

interface Difference extends DocumentName {
  /** The version of the live document, or one above everything retention removed. */
  readonly version: bigint;
  /** Null when the rebuilt model has no such document. */
  readonly payload: Buffer | null;
  readonly audience: string[] | null;
  /** Whether the live model has the document. */
  readonly live: boolean;
  readonly now: Date;
}

async function differing(
  tx: Connection,
  model: Model,
  which: DocumentRange | readonly DocumentName[],
): Promise<DocumentWrite[]> {
  const { condition, values } =
    "upTo" in which
      ? {
          condition: "(org_id, doc_key) > ($2, $3) AND (org_id, doc_key) <= ($4, $5)",
          values: [which.after.org, which.after.docKey, which.upTo.org, which.upTo.docKey],
        }
      : {
          condition: "(org_id, doc_key) IN (SELECT * FROM unnest($2::text[], $3::text[]))",
          values: [which.map(({ org }) => org), which.map(({ docKey }) => docKey)],
        };
  const rows = await tx.query<Difference>({
    text: `
      WITH live AS (
        SELECT org_id, doc_key, doc_version, NOT deleted AS there,
          CASE WHEN NOT deleted THEN payload_hash END AS payload_hash,
          CASE WHEN NOT deleted THEN audience END AS audience
        FROM runtime.${model.table} WHERE ${condition}
      ), rebuilt AS (
        SELECT org_id, doc_key, true AS there, payload, payload_hash, audience
        FROM runtime.sync_rebuilt_documents WHERE topic = $1 AND ${condition} AND NOT deleted
      )
      SELECT org_id AS org, doc_key AS "docKey", rebuilt.payload, rebuilt.audience,
        coalesce(live.there, false) AS live, now() AS now, coalesce(live.doc_version,
          (SELECT purged_version FROM runtime.sync_topic_sequences WHERE topic = $1)) AS version
      FROM live FULL JOIN rebuilt USING (org_id, doc_key)
      WHERE (coalesce(live.there, false), live.payload_hash, live.audience)
        IS DISTINCT FROM (coalesce(rebuilt.there, false), rebuilt.payload_hash, rebuilt.audience)
      ORDER BY org_id, doc_key`,
    values: [model.topic, ...values],
  });
  return rows.flatMap(({ org, docKey, version, payload, audience, live, now }): DocumentWrite[] => {
    const write = { docKey, docVersion: version + 1n, org, audience };
    const document = payload && (JSON.parse(payload.toString()) as object);
    // The rebuilt model has what retention has deleted since.
    if (payload && document && !hasExpired(model, document, now.toISOString()))
      return [{ ...write, op: "upsert", payload: payload.toString(), expiresAt: expiryOf(model, document) }];
    return live ? [{ ...write, op: "delete" }] : [];
  });
}

/**
 * Pauses the streams that the rebuild has set aside in the live projection too: their documents become the rebuilt ones,
 * which miss later events. Returns whether there were new ones.
 */
export async function adoptFailedStreams(tx: Connection, model: Model): Promise<boolean> {
  const adopted = await tx.query({
    text: `INSERT INTO runtime.sync_failed_streams (topic, rebuilt, org_id, kind, stream_id, seq, position, error)
      SELECT topic, false, org_id, kind, stream_id, seq, position, error FROM runtime.sync_failed_streams
      WHERE topic = $1 AND rebuilt ON CONFLICT DO NOTHING RETURNING 1`,
    values: [model.topic],
  });
  return adopted.length > 0;
}

/**
 * All documents are the rebuilt ones: the streams that the rebuild has set aside are the only ones now. Returns whether any
 * were set aside before; the rebuild's own are among them.
 */
export async function replaceFailedStreams(tx: Connection, model: Model): Promise<boolean> {
  const values = [model.topic];
  const before = await tx.query({
    text: "DELETE FROM runtime.sync_failed_streams WHERE topic = $1 AND NOT rebuilt RETURNING 1",
    values,
  });
  await tx.query({
    text: "UPDATE runtime.sync_failed_streams SET rebuilt = false WHERE topic = $1 AND rebuilt",
    values,
  });
  return before.length > 0;
}
