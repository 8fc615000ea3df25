import type { Model } from "../model.ts";
import { type DocumentWrite, lockTopic, writeDocuments } from "../write/write_statement.ts";
import type { Connection } from "./reprojection_shadow.ts";

/** A stretch of documents in the order of their keys, `after` not included. */
export interface KeyRange {
  readonly after: string;
  readonly upTo: string;
  readonly documents: bigint;
}

/** What one cutover may hold in memory, and in one transaction. */
const BATCH = { documents: 1_000, bytes: 8 << 20 };

/** The next documents of the live and the rebuilt model together; undefined after the last. */
export async function nextRange(tx: Connection, model: Model, after: string): Promise<KeyRange | undefined> {
  const [range] = await tx.query<{ upTo: string | null; documents: bigint }>({
    text: `SELECT max(doc_key) AS "upTo", count(*) AS documents FROM (
        SELECT doc_key, sum(bytes) OVER w AS total, row_number() OVER w AS n FROM (
          SELECT doc_key, max(bytes) AS bytes FROM (
            (SELECT doc_key, coalesce(octet_length(payload), 0) AS bytes FROM runtime.sync_rebuilt_documents
             WHERE topic = $1 AND doc_key > $2 ORDER BY doc_key LIMIT $3)
            UNION ALL
            (SELECT doc_key, 0 FROM runtime.${model.table} WHERE doc_key > $2 ORDER BY doc_key LIMIT $3)
          ) both_models GROUP BY doc_key
        ) keys WINDOW w AS (ORDER BY doc_key)
      ) sized WHERE n = 1 OR (n <= $3 AND total <= $4)`,
    values: [model.topic, after, BATCH.documents, BATCH.bytes],
  });
  return range && range.upTo !== null ? { after, upTo: range.upTo, documents: range.documents } : undefined;
}

/**
 * Makes the live documents of a range equal to the rebuilt ones, the way every writer does: a new version, a watermark and a
 * journal row for each that differs, and nothing for the rest. Returns how many differed.
 */
export async function emitDiffering(
  tx: Connection,
  model: Model,
  range: KeyRange,
  inline: boolean,
): Promise<number> {
  const found = await differing(tx, model, range);
  if (found.length === 0) return 0;
  // Only now keep writers out, and look again: what they wrote before is seen, what they write after is newer.
  await tx.query(lockTopic(model.topic));
  const writes = await differing(tx, model, range);
  if (writes.length > 0) await tx.query(writeDocuments(model, writes, inline));
  return writes.length;
}

interface Difference {
  readonly docKey: string;
  readonly liveVersion: bigint | null;
  readonly rebuiltVersion: bigint | null;
  /** Null when the rebuilt model has no such document. */
  readonly payload: Buffer | null;
  readonly org: string;
  readonly audience: string[] | null;
}

async function differing(tx: Connection, model: Model, range: KeyRange): Promise<DocumentWrite[]> {
  const rows = await tx.query<Difference>({
    text: `
      WITH live AS (
        SELECT doc_key, doc_version, org_id AS any_org,
          CASE WHEN NOT deleted THEN payload_hash END AS payload_hash,
          CASE WHEN NOT deleted THEN org_id END AS org_id,
          CASE WHEN NOT deleted THEN audience END AS audience
        FROM runtime.${model.table} WHERE doc_key > $2 AND doc_key <= $3
      ), rebuilt AS (
        SELECT doc_key, doc_version, payload, payload_hash, org_id, audience
        FROM runtime.sync_rebuilt_documents WHERE topic = $1 AND doc_key > $2 AND doc_key <= $3 AND NOT deleted
      )
      SELECT doc_key AS "docKey", live.doc_version AS "liveVersion", rebuilt.doc_version AS "rebuiltVersion",
        rebuilt.payload, coalesce(rebuilt.org_id, live.any_org) AS org, rebuilt.audience
      FROM live FULL JOIN rebuilt USING (doc_key)
      WHERE (live.payload_hash, live.org_id, live.audience)
        IS DISTINCT FROM (rebuilt.payload_hash, rebuilt.org_id, rebuilt.audience)
      ORDER BY doc_key`,
    values: [model.topic, range.after, range.upTo],
  });
  return rows.map(({ docKey, liveVersion, rebuiltVersion, payload, org, audience }) => {
    // Retention may have removed a tombstone together with its version; the rebuilt one still counts them all.
    const docVersion = (liveVersion ?? rebuiltVersion ?? 0n) + 1n;
    const write = { docKey, docVersion, org, audience };
    return payload
      ? { ...write, op: "upsert" as const, payload: payload.toString() }
      : { ...write, op: "delete" as const };
  });
}
