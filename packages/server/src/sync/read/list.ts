import { createHash } from "node:crypto";
import type { Database, Statement } from "../../database/database.ts";
import { unexpired } from "../expiry.ts";
import type { Model } from "../model.ts";
import { fieldOf } from "../model_fields.ts";
import { COLUMNS, type StoredDocument } from "./read_models.ts";

/** The filter and order of a list of documents. */
export interface ListQuery {
  /** A declared order; by key without one. */
  readonly order?: string | undefined;
  /** Values by declared field. */
  readonly filters: ReadonlyMap<string, string>;
  /** Only this document. */
  readonly docKey?: string | undefined;
}

/** The last document of a page: its sort key in the list's order, and its key. */
export interface ListPlace {
  readonly sortKey: string;
  readonly docKey: string;
}

export interface PageLimits {
  readonly after?: ListPlace | undefined;
  readonly limit: number;
  readonly maxBytes: number;
}

interface ListedRow {
  readonly watermark: bigint;
  readonly epoch: string;
  readonly sortKey: string;
  /** The number of documents read: some may not fit into the page. Null when there are none. */
  readonly found: bigint | null;
}

/** A page of documents, and the watermark of its snapshot. */
export interface DocumentPage {
  readonly documents: readonly StoredDocument[];
  /** The start of the next page; undefined on the last one. */
  readonly next: ListPlace | undefined;
  readonly watermark: bigint;
  readonly epoch: string;
}

type Who = { readonly org: string; readonly subject: string };

/** A page of the documents that a viewer may see, and the topic's position in the same snapshot. */
export async function listDocuments(
  database: Pick<Database, "query">,
  model: Model,
  viewer: Who,
  query: ListQuery,
  page: PageLimits,
): Promise<DocumentPage> {
  const rows = await database.query<Partial<StoredDocument> & ListedRow>(
    listStatement(model, viewer, query, page),
  );
  const [first] = rows;
  if (!first) throw new Error(`The topic ${model.topic} has no row in runtime.sync_topic_sequences.`);
  const documents = rows.filter((row): row is StoredDocument & typeof row => row.docKey != null);
  const last = documents.at(-1);
  const hasMore = last !== undefined && (first.found ?? 0n) > documents.length;
  return {
    watermark: first.watermark,
    epoch: first.epoch,
    documents,
    next: hasMore ? { sortKey: last.sortKey, docKey: last.docKey } : undefined,
  };
}

/** One statement, one snapshot. Its two branches each follow an index, so others' documents cost nothing. */
export function listStatement(
  model: Model,
  viewer: Who,
  { order, filters, docKey }: ListQuery,
  { after, limit, maxBytes }: PageLimits,
): Statement {
  const values: unknown[] = [viewer.org, viewer.subject, limit, maxBytes, model.topic];
  const value = (sent: string) => `$${values.push(sent)}`;
  // Ties are ordered by key in the same direction, so that one index serves both and a place is one comparison.
  const [direction, beyond] = order?.startsWith("-") ? ["DESC", "<"] : ["ASC", ">"];
  const column = order === undefined ? undefined : `"o_${fieldOf(order)}"`;
  const conditions: string[] = [];
  const columns: string[] = [];
  const place: string[] = [];
  for (const [i, [field, sent]] of [...filters].entries()) {
    const [name, sentAs] = [`"f_${field}"`, value(sent)];
    if (i > 0) conditions.push(`${name} = ${sentAs}`);
    else {
      // As a range, and part of the order: with an equation, the planner may walk all documents in order and drop most of them.
      conditions.push(`${name} BETWEEN ${sentAs} AND ${sentAs}`);
      columns.push(name);
      place.push(sentAs);
    }
  }
  if (docKey !== undefined) conditions.push(`doc_key = ${value(docKey)}`);
  columns.push(...(column ? [column] : []), "doc_key");
  const sorted = columns.map((name) => `${name} ${direction}`).join(", ");
  if (after) {
    if (column) place.push(value(after.sortKey));
    place.push(value(after.docKey));
    conditions.push(`(${columns.join(", ")}) ${beyond} (${place.join(", ")})`);
  }
  const branch = (audience: string) => `
    (SELECT doc_key, doc_version, payload, payload_hash, updated_at, ${column ?? "''"} AS sort_key FROM runtime.${model.table} d
     WHERE ${[audience, "NOT deleted", "org_id = $1", ...conditions].join(" AND ")} ${unexpired(model, "d")}
     ORDER BY ${sorted} LIMIT $3 + 1)`;
  const text = `
    WITH visible AS (${branch("audience IS NULL")}
      UNION ALL ${branch("audience @> ARRAY[$2::text] AND audience IS NOT NULL")}
    ), sized AS (
      SELECT *, sum(octet_length(payload)) OVER w AS total, row_number() OVER w AS n, count(*) OVER () AS found FROM visible
      WINDOW w AS (ORDER BY sort_key ${direction}, doc_key ${direction})
    )
    SELECT s.next_watermark AS watermark, e.epoch, d.*
    FROM runtime.sync_topic_sequences s CROSS JOIN runtime.sync_epoch e
    LEFT JOIN (SELECT ${COLUMNS}, sort_key AS "sortKey", n, found FROM sized WHERE n = 1 OR (n <= $3 AND total <= $4)) d ON true
    WHERE s.topic = $5
    ORDER BY d.n`;
  return { name: `sync_list_${createHash("sha256").update(text).digest("hex").slice(0, 16)}`, text, values };
}
