import type { Database } from "../../database/database.ts";
import type { Model } from "../model.ts";
import type { DocumentName } from "../read/read_models.ts";
import type { MirrorUpdate } from "./mirror.ts";

/** The head of a topic, and the mirror's position in it. */
export interface MirrorPosition {
  readonly epoch: string;
  /** The epoch that the mirror's position was stored with. */
  readonly storedEpoch: string | null;
  readonly head: bigint;
  readonly floor: bigint;
  /** Null when a full copy is needed. */
  readonly watermark: bigint | null;
}

/** Limits of a batch. One update always fits. */
export interface BatchLimits {
  readonly rows: number;
  readonly bytes: number;
}

/** Reads a mirror's position in a topic. One that cannot be resumed from counts as none. */
export async function readPosition(database: Database, topic: string, sink: string): Promise<MirrorPosition> {
  const [row] = await database.query<MirrorPosition>({
    name: "mirror_position",
    // A position is valid as a client's is: its start is known, and no start on another server found less.
    text: `SELECT e.epoch, p.epoch AS "storedEpoch", s.next_watermark AS head, s.floor, p.watermark
      FROM runtime.sync_topic_sequences s CROSS JOIN runtime.sync_epoch e
      LEFT JOIN (runtime.sync_mirror p JOIN runtime.sync_starts o ON o.id = p.epoch)
        ON p.topic = s.topic AND p.sink = $2 AND p.watermark BETWEEN s.floor AND s.next_watermark
          AND NOT EXISTS (
            SELECT FROM runtime.sync_starts n
            WHERE n.number > o.number AND n.postgres <> o.postgres AND coalesce((n.heads ->> $1)::bigint, 0) < p.watermark
          )
      WHERE s.topic = $1`,
    values: [topic, sink],
  });
  if (!row) throw new Error(`The topic ${topic} has no row in runtime.sync_topic_sequences.`);
  return row;
}

/** Sets the position after a full copy. */
export async function setPosition(
  database: Database,
  topic: string,
  sink: string,
  place: { epoch: string; watermark: bigint },
): Promise<void> {
  await database.query({
    text: `INSERT INTO runtime.sync_mirror (topic, sink, epoch, watermark) VALUES ($1, $2, $3, $4)
      ON CONFLICT (topic) DO UPDATE SET sink = excluded.sink, epoch = excluded.epoch, watermark = excluded.watermark`,
    values: [topic, sink, place.epoch, place.watermark],
  });
}

/** Moves the position. Does nothing if another process has moved it. */
export async function movePosition(
  database: Database,
  topic: string,
  sink: string,
  move: { epoch: string; storedEpoch: string | null; from: bigint; to: bigint },
): Promise<void> {
  await database.query({
    name: "mirror_move",
    text: `UPDATE runtime.sync_mirror SET epoch = $6, watermark = $5
      WHERE topic = $1 AND sink = $2 AND epoch = $3 AND watermark = $4`,
    values: [topic, sink, move.storedEpoch, move.from, move.to, move.epoch],
  });
}

/** The next updates of the journal, complete up to `through`; undefined when retention removed some. */
export async function readUpdates(
  database: Database,
  model: Model,
  after: bigint,
  limits: BatchLimits,
): Promise<{ updates: MirrorUpdate[]; through: bigint } | undefined> {
  const rows = await database.query<MirrorUpdate & { meant: boolean }>({
    name: `mirror_${model.table}`,
    // A tombstone for viewers who lose access comes right before the version for the others. The
    // mirror stores the whole document, so it skips the tombstone, and versions that pointer mode no longer has.
    text: `SELECT e.watermark, e.doc_key AS "docKey", e.doc_version AS "docVersion", e.op, e.org_id AS org, e.audience,
        encode(e.payload_hash, 'hex') AS "payloadHash", convert_from(coalesce(e.payload, d.payload), 'UTF8') AS payload,
        CASE e.op WHEN 'upsert' THEN coalesce(e.payload, d.payload) IS NOT NULL ELSE next.watermark IS NULL END AS meant
      FROM (
        SELECT *, sum(payload_bytes) OVER (ORDER BY watermark) AS total, row_number() OVER (ORDER BY watermark) AS n
        FROM (
          SELECT * FROM runtime.sync_stream_events WHERE topic = $1 AND watermark > $2 ORDER BY watermark LIMIT $3
        ) page
      ) e
      LEFT JOIN runtime.${model.table} d
        ON e.op = 'upsert' AND e.payload IS NULL
          AND d.org_id = e.org_id AND d.doc_key = e.doc_key AND d.doc_version = e.doc_version
      LEFT JOIN runtime.sync_stream_events next ON e.op = 'delete' AND next.topic = $1 AND next.watermark = e.watermark + 1
        AND next.org_id = e.org_id AND next.doc_key = e.doc_key AND next.doc_version = e.doc_version
      WHERE e.n = 1 OR e.total <= $4
      ORDER BY e.watermark`,
    values: [model.topic, after, limits.rows, limits.bytes],
  });
  // Watermarks are dense: a missing one was removed.
  if (rows[0]?.watermark !== after + 1n) return undefined;
  const updates = rows.filter((row) => row.meant).map(({ meant: _, ...update }) => update);
  return { updates, through: rows.at(-1)!.watermark };
}

/** The next documents of the read model, tombstones included, ordered by org and key; none after the last. */
export function listUpdates(
  database: Database,
  model: Model,
  after: DocumentName,
  limits: BatchLimits,
): Promise<MirrorUpdate[]> {
  return database.query<MirrorUpdate>({
    name: `mirror_list_${model.table}`,
    text: `SELECT doc_key AS "docKey", doc_version AS "docVersion", CASE WHEN deleted THEN 'delete' ELSE 'upsert' END AS op,
        convert_from(payload, 'UTF8') AS payload, encode(payload_hash, 'hex') AS "payloadHash", org_id AS org, audience,
        watermark
      FROM (
        SELECT *, sum(octet_length(payload)) OVER w AS total, row_number() OVER w AS n
        FROM (
          SELECT * FROM runtime.${model.table} WHERE (org_id, doc_key) > ($1, $2) ORDER BY org_id, doc_key LIMIT $3
        ) page
        WINDOW w AS (ORDER BY org_id, doc_key)
      ) d
      WHERE n = 1 OR coalesce(total, 0) <= $4
      ORDER BY org_id, doc_key`,
    values: [after.org, after.docKey, limits.rows, limits.bytes],
  });
}
