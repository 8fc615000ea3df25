import type { JsonObject } from "@bufbuild/protobuf";
import type { DocumentSummaryJson, HistoryEntryJson, TopicJson } from "@khala/contracts/ops/v1";
import type { Database } from "../../database/database.ts";
import type { Authority } from "../../events/authority.ts";
import { unexpired } from "../expiry.ts";
import type { Model, Models } from "../model.ts";
import type { SyncPlane } from "../plane.ts";

/** The viewer of an inspection. */
interface Viewer {
  readonly org: string;
  readonly subject: string;
}

/** The limits of a search, in documents and in bytes of a payload: more would keep the database busy. */
const SEARCHED = 5_000;
const SEARCHED_BYTES = 65_536;
/** A larger document has no preview. */
const PREVIEWED_BYTES = 65_536;
const PREVIEW_FIELDS = 24;
const PREVIEW_CHARACTERS = 200;
const HISTORY_BYTES = 4 << 20;
/** Maximum documents that are counted exactly. */
const COUNTED = 10_000;

export interface TopicsOptions {
  readonly database: Database;
  readonly authority: Authority;
  readonly sync: Pick<SyncPlane, "hub" | "projections">;
  readonly models: Models;
  readonly retentionMs: number;
}

/** Every topic: its journal, documents and subscriptions on this server. */
export async function describeTopics(options: TopicsOptions): Promise<TopicJson[]> {
  const { database, sync, models, retentionMs } = options;
  const [newest, rows] = await Promise.all([options.authority.head(), topicRows(database, models)]);
  const feeds = new Map(sync.hub.open().map((feed) => [feed.model.topic, feed]));
  const projections = new Map(sync.projections().map((state) => [state.topic, state]));
  const all = rows.reduce((sum, { head, floor }) => sum + Number(head - floor), 0);
  return rows.map(({ topic, head, floor, epoch, documents, bytes, failed }): TopicJson => {
    const feed = feeds.get(topic);
    const position = projections.get(topic)?.position;
    const journalRows = Number(head - floor);
    return {
      topic,
      head: String(head),
      floor: String(floor),
      epoch,
      lag: feed ? Number(feed.lag().rows) : 0,
      documents,
      journal_rows: journalRows,
      journal_bytes: all > 0 ? Math.round((Number(bytes) * journalRows) / all) : 0,
      retention_hours: retentionMs / 3_600_000,
      subscribers: feed?.liveCount ?? 0,
      projection: {
        state: position === undefined ? "elsewhere" : "ok",
        failed,
        ...(position !== undefined && { position: String(position) }),
        head: String(newest),
      },
    };
  });
}

interface TopicRow {
  readonly topic: string;
  readonly head: bigint;
  readonly floor: bigint;
  readonly epoch: string;
  readonly documents: number;
  readonly bytes: bigint;
  readonly failed: number;
}

/** Counts few documents exactly; uses the planner's estimate for many. */
async function topicRows(database: Database, models: Models): Promise<TopicRow[]> {
  if (models.all.length === 0) return [];
  const counts = models.all.map(
    ({ table }, i) => `SELECT $1::text[] AS topics, ${i + 1} AS n, '${table}' AS name,
      (SELECT count(*) FROM (SELECT 1 FROM runtime.${table} WHERE NOT deleted LIMIT ${COUNTED}) counted) AS few`,
  );
  return database.query<TopicRow>({
    text: `SELECT s.topic, s.next_watermark AS head, s.floor, e.epoch,
        (CASE WHEN m.few < ${COUNTED} THEN m.few ELSE greatest(c.reltuples, m.few) END)::float8 AS documents,
        pg_total_relation_size('runtime.sync_stream_events') AS bytes,
        (SELECT count(*)::int FROM (
           SELECT FROM runtime.sync_failed_streams f WHERE f.topic = s.topic AND NOT f.rebuilt LIMIT ${COUNTED}
         ) counted) AS failed
      FROM (${counts.join(" UNION ALL ")}) m
      JOIN runtime.sync_topic_sequences s ON s.topic = m.topics[m.n] CROSS JOIN runtime.sync_epoch e
      JOIN pg_class c ON c.oid = to_regclass('runtime.' || m.name)
      ORDER BY s.topic`,
    values: [models.all.map(({ topic }) => topic)],
  });
}

/** Documents by key; `next` is the key to continue after. */
export interface FoundDocuments {
  readonly documents: DocumentSummaryJson[];
  readonly next: string | undefined;
}

/** Documents that the viewer may see whose key or content contains a text, after a key. A bounded part of them is searched. */
export async function searchDocuments(
  database: Database,
  model: Model,
  viewer: Viewer,
  { search, after, limit }: { search: string; after: string; limit: number },
): Promise<FoundDocuments> {
  // The two branches follow an index each, as those of a list do.
  const rows = await database.query<{
    key: string;
    version: bigint;
    updatedAt: Date;
    bytes: number;
    audience: string[] | null;
    payload: string | null;
    found: boolean;
    last: boolean;
  }>({
    name: `ops_documents_${model.table}`,
    text: `
      WITH visible AS (
        (SELECT doc_key FROM runtime.${model.table}
         WHERE org_id = $1 AND audience IS NULL AND NOT deleted AND doc_key > $3 ORDER BY doc_key LIMIT $4)
        UNION ALL
        (SELECT doc_key FROM runtime.${model.table}
         WHERE audience @> ARRAY[$2::text] AND audience IS NOT NULL AND NOT deleted AND org_id = $1 AND doc_key > $3
         ORDER BY doc_key LIMIT $4)
      ), scanned AS (
        SELECT doc_key, row_number() OVER (ORDER BY doc_key) AS n FROM visible
      ), matched AS (
        SELECT l.doc_key, l.n, ($5 = '' OR strpos(lower(l.doc_key), $5) > 0 OR (octet_length(p.payload) <= ${SEARCHED_BYTES}
          AND strpos(lower(convert_from(p.payload, 'UTF8')), $5) > 0)) ${unexpired(model, "p")} AS found
        FROM scanned l JOIN runtime.${model.table} p ON p.org_id = $1 AND p.doc_key = l.doc_key WHERE l.n <= $4
      ), chosen AS (
        SELECT doc_key, coalesce(found, false) AS found, n = $4 AS last FROM matched WHERE found OR n = $4 ORDER BY doc_key LIMIT $6
      )
      SELECT d.doc_key AS key, d.doc_version AS version, d.updated_at AS "updatedAt", octet_length(d.payload) AS bytes,
        d.audience, c.found, c.last,
        CASE WHEN octet_length(d.payload) <= ${PREVIEWED_BYTES} THEN convert_from(d.payload, 'UTF8') END AS payload
      FROM chosen c JOIN runtime.${model.table} d ON d.org_id = $1 AND d.doc_key = c.doc_key ORDER BY d.doc_key`,
    values: [viewer.org, viewer.subject, after, SEARCHED, search.toLowerCase(), limit + 1],
  });
  const found = rows.filter((row) => row.found);
  const shown = found.slice(0, limit);
  // More were found than fit; or as many keys were searched as may be, and the last of them is where it stopped.
  const next = found.length > limit ? shown.at(-1)!.key : rows.find((row) => row.last)?.key;
  return {
    documents: shown.map(({ key, version, updatedAt, bytes, audience, payload }) => ({
      doc_key: key,
      doc_version: String(version),
      updated_at: updatedAt.toISOString(),
      bytes: bytes ?? 0,
      audience: audience ?? [],
      ...(payload !== null && { preview: previewOf(payload) }),
    })),
    next,
  };
}

/** The short fields of a document: enough for a row of a table. */
function previewOf(payload: string): JsonObject {
  const short = Object.entries(Object(JSON.parse(payload)) as JsonObject)
    .filter(([, value]) => ["string", "number", "boolean"].includes(typeof value))
    .slice(0, PREVIEW_FIELDS)
    .map(([name, value]) => [name, typeof value === "string" ? value.slice(0, PREVIEW_CHARACTERS) : value]);
  return Object.fromEntries(short) as JsonObject;
}

/**
 * The versions of a document that the journal has, newest first; undefined when the viewer may not see the document. Of
 * versions with another audience, those that did not name the viewer are left out.
 */
export async function documentHistory(
  database: Database,
  model: Model,
  docKey: string,
  viewer: Viewer,
  { limit, payloadBytes }: { limit: number; payloadBytes: number },
): Promise<HistoryEntryJson[] | undefined> {
  const [document] = await database.query({
    name: `ops_history_access_${model.table}`,
    text: `SELECT 1 FROM runtime.${model.table}
      WHERE doc_key = $1 AND org_id = $2 AND (audience IS NULL OR $3 = ANY(audience))`,
    values: [docKey, viewer.org, viewer.subject],
  });
  if (!document) return undefined;
  const rows = await database.query<{
    watermark: bigint;
    version: bigint;
    op: string;
    payload: string | null;
    hash: string | null;
    at: Date;
  }>({
    name: `ops_history_${model.table}`,
    text: `
      SELECT e.watermark, e.doc_version AS version, e.op, encode(e.payload_hash, 'hex') AS hash, e.inserted_at AS at,
        convert_from(CASE WHEN e.payload_bytes > $6 OR e.total > $7 THEN NULL
          WHEN e.payload IS NULL AND e.op = 'upsert'
            THEN (SELECT d.payload FROM runtime.${model.table} d
                  WHERE d.org_id = e.org_id AND d.doc_key = e.doc_key AND d.doc_version = e.doc_version)
          ELSE e.payload END, 'UTF8') AS payload
      FROM (
        SELECT *, sum(payload_bytes) OVER (ORDER BY watermark DESC) AS total FROM (
          SELECT * FROM runtime.sync_stream_events
          WHERE topic = $1 AND doc_key = $2 AND org_id = $3 AND (audience IS NULL OR $4 = ANY(audience))
            AND (hidden_from IS NULL OR NOT $4 = ANY(hidden_from))
          ORDER BY watermark DESC LIMIT $5
        ) newest
      ) e ORDER BY e.watermark DESC`,
    values: [model.topic, docKey, viewer.org, viewer.subject, limit, payloadBytes, HISTORY_BYTES],
  });
  return rows.map(
    ({ watermark, version, op, payload, hash, at }): HistoryEntryJson => ({
      watermark: String(watermark),
      doc_version: String(version),
      op,
      ...(payload !== null && { payload: JSON.parse(payload) }),
      ...(hash !== null && { payload_hash: hash }),
      committed_at: at.toISOString(),
    }),
  );
}
