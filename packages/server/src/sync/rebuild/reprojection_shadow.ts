import type { Database, Statement } from "../../database/database.ts";
import { readEvents } from "../../events/authority.ts";
import type { AuthorityEvent } from "../../events/stream.ts";
import type { Model } from "../model.ts";
import type { CurrentDocument } from "../read/read_models.ts";
import { applyEvent, keysOf } from "../write/projection.ts";
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

  /** Takes the events after `from`, at most a batch and none after `upTo`. Returns the position it came to. */
  async fold(tx: Connection, from: bigint, upTo: bigint): Promise<bigint> {
    // Positions are dense: so many events, and not one beyond.
    const events = await readEvents(tx, from, Math.min(BATCH, Number(upTo - from)));
    const last = events.at(-1);
    if (!last) throw new Error(`The log has no event after ${from}, but the checkpoint is at ${upTo}.`);
    await this.#load(tx, events);
    const newest = new Map<string, DocumentWrite>();
    for (const event of events) {
      const write = applyEvent(this.#model, event, this.#documents);
      if (write) newest.set(write.docKey, write);
    }
    if (newest.size > 0) await tx.query(store(this.#model.topic, [...newest.values()]));
    for (const key of this.#documents.keys()) {
      if (this.#documents.size <= CACHED_DOCUMENTS) break;
      this.#documents.delete(key);
    }
    return last.position;
  }

  /** What was folded may not be what was committed: read it again. */
  forget(): void {
    this.#documents.clear();
  }

  /** Removes what was built, in bounded steps. */
  async clear(database: Pick<Database, "transaction">): Promise<void> {
    const text = `WITH batch AS (
        SELECT doc_key FROM runtime.sync_rebuilt_documents WHERE topic = $1 ORDER BY doc_key LIMIT $2
      )
      DELETE FROM runtime.sync_rebuilt_documents d USING batch WHERE d.topic = $1 AND d.doc_key = batch.doc_key
      RETURNING 1`;
    const statement = { text, values: [this.#model.topic, CLEARED_AT_ONCE] };
    let cleared: readonly unknown[] | undefined;
    do [, cleared] = await database.transaction([BY_INDEX, statement]);
    while (cleared?.length === CLEARED_AT_ONCE);
  }

  async #load(tx: Connection, events: readonly AuthorityEvent[]): Promise<void> {
    const missing = [...keysOf(this.#model, events)].filter((key) => !this.#documents.has(key));
    if (missing.length === 0) return;
    const rows = await tx.query<StoredRow>({
      name: "rebuilt_documents",
      text: `SELECT doc_key, doc_version, payload, org_id, audience FROM runtime.sync_rebuilt_documents
        WHERE topic = $1 AND doc_key = ANY($2)`,
      values: [this.#model.topic, missing],
    });
    for (const row of rows) {
      const document = row.payload && (JSON.parse(row.payload.toString()) as object);
      const access = { org: row.org_id, audience: row.audience };
      this.#documents.set(row.doc_key, { version: row.doc_version, document, access });
    }
  }
}

interface StoredRow {
  readonly doc_key: string;
  readonly doc_version: bigint;
  readonly payload: Buffer | null;
  readonly org_id: string;
  readonly audience: string[] | null;
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
      ON CONFLICT (topic, doc_key) DO UPDATE SET doc_version = excluded.doc_version, payload = excluded.payload,
        payload_hash = excluded.payload_hash, org_id = excluded.org_id, audience = excluded.audience,
        deleted = excluded.deleted`,
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
