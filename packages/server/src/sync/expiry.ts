import type { Database, Statement } from "../database/database.ts";
import { documentId, type Model } from "./model.ts";
import { type DocumentWrite, lockProjection, writeDocuments } from "./write/write_statement.ts";

/** When a document expires, in one form of RFC 3339; null when it does not. Throws when the model returns another text. */
export function expiryOf(model: Model, document: object): string | null {
  const at = model.expiresAt?.(document) ?? null;
  if (at === null) return null;
  const time = typeof at === "string" ? Date.parse(at) : Number.NaN;
  if (Number.isNaN(time))
    throw new TypeError(
      `expiresAt of ${model.topic} must return a time, such as an event's \`at\`, or null, not ${String(at)}.`,
    );
  return new Date(time).toISOString();
}

/** Whether a document has expired at a time, in RFC 3339. */
export function hasExpired(model: Model, document: object, at: string): boolean {
  const expiry = expiryOf(model, document);
  return expiry !== null && Date.parse(expiry) <= Date.parse(at);
}

/** Notes when written documents expire; undefined for a model whose documents do not. */
export function storeExpiries(model: Model, writes: readonly DocumentWrite[]): Statement | undefined {
  if (!model.expiresAt || writes.length === 0) return undefined;
  const newest = [...new Map(writes.map((write) => [documentId(write), write])).values()];
  return {
    name: "sync_store_expiries",
    text: `WITH written AS (
        SELECT org_id, doc_key, expires_at::timestamptz AS expires_at
        FROM unnest($2::text[], $3::text[], $4::text[]) AS i(org_id, doc_key, expires_at)
      ), kept AS (
        DELETE FROM runtime.sync_expiries x USING written w
        WHERE x.topic = $1 AND x.org_id = w.org_id AND x.doc_key = w.doc_key AND w.expires_at IS NULL
      )
      INSERT INTO runtime.sync_expiries (topic, org_id, doc_key, expires_at)
      SELECT $1, org_id, doc_key, expires_at FROM written WHERE expires_at IS NOT NULL
      ON CONFLICT (topic, org_id, doc_key) DO UPDATE SET expires_at = excluded.expires_at`,
    values: [
      model.topic,
      newest.map(({ org }) => org),
      newest.map(({ docKey }) => docKey),
      newest.map(({ expiresAt }) => expiresAt ?? null),
    ],
  };
}

/** A condition for the documents of `alias` that have not expired, as SQL after another condition. */
export function unexpired(model: Model, alias: string): string {
  if (!model.expiresAt) return "";
  // A topic is a name: it cannot hold a quote.
  return `AND NOT EXISTS (SELECT FROM runtime.sync_expiries x WHERE x.topic = '${model.topic}'
    AND x.org_id = ${alias}.org_id AND x.doc_key = ${alias}.doc_key AND x.expires_at <= now())`;
}

/** Documents per transaction: few enough not to hold the projection up. */
export const EXPIRED_BATCH = 500;

interface Expired {
  readonly org: string;
  readonly docKey: string;
  /** Null when there is no such document any more. */
  readonly version: bigint | null;
}

/** Deletes up to a batch of expired documents, with a tombstone each. Returns how many entries it settled. */
export async function deleteExpired(
  database: Pick<Database, "query" | "interactive">,
  model: Model,
  inline: boolean,
): Promise<number> {
  if (!model.expiresAt) return 0;
  const { topic, table } = model;
  // Without the locks: usually there is nothing to do.
  const due = await database.query({
    name: "sync_retention_due",
    text: "SELECT FROM runtime.sync_expiries WHERE topic = $1 AND expires_at <= now() LIMIT 1",
    values: [topic],
  });
  if (due.length === 0) return 0;
  return database.interactive(async (tx) => {
    await tx.query(lockProjection(topic));
    const expired = await tx.query<Expired>({
      name: `sync_retention_expired_${table}`,
      text: `WITH batch AS (
          DELETE FROM runtime.sync_expiries WHERE (topic, org_id, doc_key) IN (
            SELECT topic, org_id, doc_key FROM runtime.sync_expiries WHERE topic = $1 AND expires_at <= now()
            ORDER BY expires_at LIMIT $2)
          RETURNING org_id, doc_key
        )
        SELECT b.org_id AS org, b.doc_key AS "docKey", d.doc_version AS version
        FROM batch b LEFT JOIN runtime.${table} d ON d.org_id = b.org_id AND d.doc_key = b.doc_key AND NOT d.deleted`,
      values: [topic, EXPIRED_BATCH],
    });
    const writes = expired.flatMap(({ org, docKey, version }): DocumentWrite[] =>
      version === null ? [] : [{ docKey, docVersion: version + 1n, op: "delete", org, audience: null }],
    );
    if (writes.length > 0) {
      await tx.query(writeDocuments(model, writes, inline));
      // The projector has these documents in memory: it reads them again before it commits.
      await tx.query({
        name: "sync_retention_generation",
        text: "UPDATE runtime.sync_checkpoints SET generation = generation + 1 WHERE topic = $1",
        values: [topic],
      });
    }
    return expired.length;
  });
}
