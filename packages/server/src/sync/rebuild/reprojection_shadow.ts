import type { Database, Statement } from "../../database/database.ts";
import { readEvents } from "../../events/authority.ts";
import type { AuthorityEvent } from "../../events/stream.ts";
import { documentId, type Model } from "../model.ts";
import {
  type CurrentDocument,
  type CurrentRow,
  currentDocuments,
  type DocumentName,
} from "../read/read_models.ts";
import { pausedStreams, setAside } from "../write/failed_streams.ts";
import { documentsOf, foldEvents } from "../write/projection.ts";
import type { DocumentWrite } from "../write/write_statement.ts";

/** A connection, inside a transaction or not. */
export type Connection = Pick<Database, "query">;

/**
 * Makes the statements of a transaction use indexes. The tables were filled a moment ago and have no statistics, so the planner
 * takes them for small and would scan them for every batch.
 */
export const BY_INDEX: Statement = { text: "SELECT set_config('enable_seqscan', 'off', true)" };

const BATCH = 1_000;
const CACHED_DOCUMENTS = 20_000;
const CLEARED_AT_ONCE = 5_000;

/** The documents of one model as its code makes them today, built from the log beside the live ones. */
export class ShadowModel {
  readonly #model: Model;
  readonly #documents = new Map<string, CurrentDocument>();

  constructor(model: Model) {
    this.#model = model;
  }

  /**
   * Takes the events after `from`, at most a batch and none after `upTo`. Returns the position it came to, and the documents
   * that changed. Streams that fail are set aside, apart from those of the live projection.
   */
  async fold(
    tx: Connection,
    from: bigint,
    upTo: bigint,
  ): Promise<{ readonly position: bigint; readonly changed: readonly DocumentName[] }> {
    // Positions are dense: exactly this many events, and none beyond.
    const events = await readEvents(tx, from, Math.min(BATCH, Number(upTo - from)));
    const last = events.at(-1);
    if (!last) throw new Error(`The log has no event after ${from}, but the checkpoint is at ${upTo}.`);
    await this.#load(tx, events);
    const newest = new Map<string, DocumentWrite>();
    const { topic } = this.#model;
    const paused = await pausedStreams(tx, topic, true, events);
    const { writes, failures } = foldEvents(this.#model, events, this.#documents, paused);
    for (const write of writes) newest.set(documentId(write), write);
    if (newest.size > 0) await tx.query(store(topic, [...newest.values()]));
    if (failures.length > 0) await tx.query(setAside(topic, true, failures));
    for (const key of this.#documents.keys()) {
      if (this.#documents.size <= CACHED_DOCUMENTS) break;
      this.#documents.delete(key);
    }
    return { position: last.position, changed: [...newest.values()] };
  }

  /** The folded state may differ from the committed one: read it again. */
  reset(): void {
    this.#documents.clear();
  }

  /** Removes what was built, in bounded steps. */
  async clear(database: Pick<Database, "query" | "transaction">): Promise<void> {
    await database.query({
      text: "DELETE FROM runtime.sync_failed_streams WHERE topic = $1 AND rebuilt",
      values: [this.#model.topic],
    });
    const text = `WITH batch AS (
        SELECT org_id, doc_key FROM runtime.sync_rebuilt_documents WHERE topic = $1 ORDER BY org_id, doc_key LIMIT $2
      )
      DELETE FROM runtime.sync_rebuilt_documents d USING batch
      WHERE d.topic = $1 AND d.org_id = batch.org_id AND d.doc_key = batch.doc_key
      RETURNING 1`;
    const statement = { text, values: [this.#model.topic, CLEARED_AT_ONCE] };
    let cleared: readonly unknown[] | undefined;
    do [, cleared] = await database.transaction([BY_INDEX, statement]);
    while (cleared?.length === CLEARED_AT_ONCE);
  }

  async #load(tx: Connection, events: readonly AuthorityEvent[]): Promise<void> {
    const named = [...documentsOf(this.#model, events)];
    const missing = named.filter(([id]) => !this.#documents.has(id)).map(([, name]) => name);
    if (missing.length === 0) return;
    const rows = await tx.query<CurrentRow>({
      name: "rebuilt_documents",
      text: `SELECT d.org_id AS org, d.doc_key AS "docKey", d.doc_version AS version, d.payload, d.audience
        FROM unnest($2::text[], $3::text[]) AS i(org_id, doc_key)
        JOIN runtime.sync_rebuilt_documents d ON d.topic = $1 AND d.org_id = i.org_id AND d.doc_key = i.doc_key`,
      values: [this.#model.topic, missing.map(({ org }) => org), missing.map(({ docKey }) => docKey)],
    });
    for (const [id, current] of currentDocuments(rows)) this.#documents.set(id, current);
  }
}

function store(topic: string, writes: readonly DocumentWrite[]): Statement {
  return {
    name: "store_rebuilt",
    text: `INSERT INTO runtime.sync_rebuilt_documents AS d
        (topic, doc_key, doc_version, payload, payload_hash, org_id, audience, deleted)
      SELECT $1, doc_key, doc_version, payload, sha256(payload), org_id,
        CASE WHEN audience IS NOT NULL THEN ARRAY(SELECT json_array_elements_text(audience::json)) END, payload IS NULL
      FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::text[])
        AS i(doc_key, doc_version, payload, org_id, audience)
      ON CONFLICT (topic, org_id, doc_key) DO UPDATE SET doc_version = excluded.doc_version, payload = excluded.payload,
        payload_hash = excluded.payload_hash, audience = excluded.audience, deleted = excluded.deleted`,
    values: [
      topic,
      writes.map((write) => write.docKey),
      writes.map((write) => write.docVersion),
      writes.map((write) => (write.payload === undefined ? null : Buffer.from(write.payload))),
      writes.map((write) => write.org),
      writes.map((write) => (write.audience ? JSON.stringify(write.audience) : null)),
    ],
  };
}
