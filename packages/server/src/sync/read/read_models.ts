import type { Database, Statement } from "../../database/database.ts";
import { explainMissingRight } from "../../database/migrate.ts";
import { unexpired } from "../expiry.ts";
import { documentId, type Model } from "../model.ts";
import { fieldOf, filterFields } from "../model_fields.ts";

/** A document as the read model has it. */
export interface StoredDocument {
  readonly docKey: string;
  readonly docVersion: bigint;
  /** Canonical JSON; null once deleted. */
  readonly payload: string | null;
  readonly payloadHash: string | null;
  readonly updatedAt: Date;
}

/** Creates the table, topic and checkpoint of each model. */
export async function createReadModels(database: Database, models: readonly Model[]): Promise<void> {
  const create = database.interactive(async (tx) => {
    // Two processes would create the same table: one at a time.
    await tx.query({ text: "SELECT pg_advisory_xact_lock(7240114)" });
    // A new index on many documents takes as long as it takes.
    await tx.query({ text: "SELECT set_config('statement_timeout', '0', true)" });
    for (const model of models) {
      await tx.query(createReadModel(model, { prune: false }));
    }
  });
  await create.catch(async (error) => {
    throw await explainMissingRight(database, error);
  });
}

/** Creates a model's table, columns and indexes; `prune` removes those that it does not declare any more. */
export function createReadModel(model: Model, { prune }: { readonly prune: boolean }): Statement {
  const orders = [...new Set(model.orderBy.map(fieldOf))];
  return {
    text: "SELECT runtime.create_read_model($1, $2, $3, $4, $5, $6)",
    values: [model.topic, model.table, orders, filterFields(model), model.by, prune],
  };
}

/** A stored document, with what a projector needs of it. */
export interface CurrentRow extends DocumentName {
  readonly version: bigint;
  readonly payload: Buffer | null;
  readonly audience: string[] | null;
}

/** A document as a projector uses it. */
export interface CurrentDocument {
  readonly version: bigint;
  /** Null once deleted. */
  readonly document: object | null;
  readonly audience: readonly string[] | null;
}

/** The key of a document, in its org. */
export interface DocumentName {
  readonly org: string;
  readonly docKey: string;
}

/** Comes before every document, where they are ordered by org and key. */
export const BEFORE_ALL: DocumentName = { org: "", docKey: "" };

/** The state a projector reads before it applies events. */
export interface CurrentDocuments {
  /** By `documentId`. */
  readonly documents: Map<string, CurrentDocument>;
  /** The highest version of a document that retention removed. It covers every document that is missing. */
  readonly purgedVersion: bigint;
}

/** Reads the current documents for a projector. */
export async function loadCurrent(
  database: Database,
  { topic, table }: Model,
  names: readonly DocumentName[],
): Promise<CurrentDocuments> {
  const current = {
    name: `sync_current_${table}`,
    text: `SELECT d.org_id AS org, d.doc_key AS "docKey", d.doc_version AS version, d.payload, d.audience
      FROM unnest($1::text[], $2::text[]) AS i(org_id, doc_key)
      JOIN runtime.${table} d ON d.org_id = i.org_id AND d.doc_key = i.doc_key`,
    values: [names.map(({ org }) => org), names.map(({ docKey }) => docKey)],
  };
  // In this order: a tombstone that is removed in between is found, or covered by the version.
  const purged = {
    name: "sync_purged_version",
    text: 'SELECT purged_version AS "purgedVersion" FROM runtime.sync_topic_sequences WHERE topic = $1',
    values: [topic],
  };
  const [rows, [row]] = (await database.transaction([current, purged])) as [
    CurrentRow[],
    { purgedVersion: bigint }[],
  ];
  return { documents: currentDocuments(rows), purgedVersion: row!.purgedVersion };
}

/** Stored documents as a projector uses them, by `documentId`. */
export function currentDocuments(rows: readonly CurrentRow[]): Map<string, CurrentDocument> {
  return new Map(
    rows.map((row) => {
      const document = row.payload && (JSON.parse(row.payload.toString()) as object);
      return [documentId(row), { version: row.version, document, audience: row.audience }];
    }),
  );
}

/** The columns of a `StoredDocument`. */
export const COLUMNS = `doc_key AS "docKey", doc_version AS "docVersion", convert_from(payload, 'UTF8') AS payload, encode(payload_hash, 'hex') AS "payloadHash",
  updated_at AS "updatedAt"`;

/** The document, if it exists and the viewer may see it. */
export async function findDocument(
  database: Database,
  model: Model,
  docKey: string,
  viewer: { org: string; subject: string },
): Promise<StoredDocument | undefined> {
  const [row] = await database.query<StoredDocument>({
    name: `sync_document_${model.table}`,
    text: `SELECT ${COLUMNS} FROM runtime.${model.table} d
      WHERE doc_key = $1 AND org_id = $2 AND NOT deleted AND (audience IS NULL OR $3 = ANY(audience)) ${unexpired(model, "d")}`,
    values: [docKey, viewer.org, viewer.subject],
  });
  return row;
}
