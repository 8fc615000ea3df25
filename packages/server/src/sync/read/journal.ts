import type { Database, Statement } from "../../database/database.ts";
import type { SyncMetrics } from "../metrics.ts";
import type { Model } from "../model.ts";
import { docKeyOf, partLabel, type TopicPart } from "../part.ts";

/** A row of the journal. */
export interface JournalRow {
  readonly watermark: bigint;
  readonly docKey: string;
  readonly docVersion: bigint;
  readonly op: "upsert" | "delete";
  /** Canonical JSON; null on delete, when it is over the limit, or when `superseded`. */
  readonly payload: string | null;
  readonly payloadHash: string | null;
  readonly payloadBytes: number;
  readonly org: string;
  readonly audience: readonly string[] | null;
  readonly hiddenFrom: readonly string[] | null;
  /** The parts of the topic that the document is in, by label; null: unknown. */
  readonly parts?: readonly string[] | null;
  /** The parts that it left with this row. */
  readonly leftParts?: readonly string[] | null;
  readonly trace: string | null;
  /** Milliseconds since the epoch. */
  readonly insertedAt: number;
}

/** The bounds of a topic: cursors in [floor, head] can be resumed, those of its parts in [partsFloor, head]. */
export interface Bounds {
  readonly head: bigint;
  readonly floor: bigint;
  readonly partsFloor: bigint;
}

export interface Heads {
  readonly epoch: string;
  readonly topics: ReadonlyMap<string, Bounds>;
}

/** Limits of a read. One row always fits. */
export interface ReadLimits {
  readonly rows: number;
  readonly bytes: number;
  /** The largest payload that is returned; otherwise the row has only its size. */
  readonly payloadBytes: number;
}

/** A viewer and a position to read from. `subject` null means rows for the whole org; with a part, all rows of its first field. */
export interface Want {
  readonly org: string;
  readonly subject: string | null;
  readonly part?: TopicPart | undefined;
  readonly after: bigint;
  /** The maximum bytes of payload, except for a single row. */
  readonly bytes: number;
}

/** The rows that one want is given; complete up to `through`. */
export interface WantedPage {
  readonly rows: readonly JournalRow[];
  readonly through: bigint;
}

/** The read side of the journal. */
export interface Journal {
  heads(): Promise<Heads>;
  /** Everyone's rows after a watermark, in order. */
  read(model: Model, after: bigint, limits: ReadLimits): Promise<JournalRow[]>;
  /**
   * Rows for many wants, in a constant number of statements; `limits.bytes` holds for all of them together, and a want
   * that nothing is left for gets an empty page that does not move. The bounds are those after the read.
   */
  readWanted(
    model: Model,
    wants: readonly Want[],
    limits: ReadLimits,
  ): Promise<{ pages: WantedPage[]; bounds: Bounds }>;
}

/** Opens the journal for reading. Reads are counted by topic, and so are those that fail. */
export function openJournal(
  database: Database,
  metrics?: Pick<SyncMetrics, "reads" | "readFailures">,
): Journal {
  async function counted<T>({ topic }: Model, read: () => Promise<T>): Promise<T> {
    metrics?.reads.add(1, { topic });
    try {
      return await read();
    } catch (error) {
      metrics?.readFailures.add(1, { topic });
      throw error;
    }
  }

  return {
    async heads() {
      // An app without models has an epoch, too.
      const rows = await database.query<Bounds & { topic: string | null; epoch: string }>({
        name: "sync_heads",
        text: `SELECT e.epoch, s.topic, s.next_watermark AS head, s.floor, greatest(s.floor, s.parts_floor) AS "partsFloor"
          FROM runtime.sync_epoch e LEFT JOIN runtime.sync_topic_sequences s ON true`,
      });
      const topics = new Map<string, Bounds>();
      for (const { topic, head, floor, partsFloor } of rows)
        if (topic !== null) topics.set(topic, { head, floor, partsFloor });
      return { epoch: rows[0]?.epoch ?? "", topics };
    },

    async read(model, after, limits) {
      return counted(model, () => database.query<JournalRow>(readStatement(model, after, limits)));
    },

    async readWanted(model, wants, limits) {
      const bounds = {
        name: "sync_bounds",
        text: `SELECT next_watermark AS head, floor, greatest(floor, parts_floor) AS "partsFloor"
          FROM runtime.sync_topic_sequences WHERE topic = $1`,
        values: [model.topic],
      };
      // The head first: everything up to it is visible to the reads. The floor last: nothing above it was purged before them.
      const statements = [bounds, wantedStatement(model, wants, limits), bounds];
      const answers = await counted(model, () => database.transaction(statements));
      const [before, rows, after] = answers as unknown[] as [
        Bounds[],
        (JournalRow & { want: number; full: boolean; dropped: boolean })[],
        Bounds[],
      ];
      const { head } = before[0]!;
      const byWant = Map.groupBy(rows, (row) => row.want);
      const pages = wants.map((want, i) => {
        const own = byWant.get(i + 1) ?? [];
        const kept = own.filter((row) => !row.dropped);
        const whole = kept.length === own.length && !own[0]?.full;
        return { rows: kept, through: whole ? head : (kept.at(-1)?.watermark ?? want.after) };
      });
      return { pages, bounds: after[0]! };
    },
  };
}

const ROW = (model: Model, limit: string, unwanted = "false") => `
  e.watermark, e.doc_key AS "docKey", e.doc_version AS "docVersion", e.op, e.payload_bytes AS "payloadBytes",
  encode(e.payload_hash, 'hex') AS "payloadHash", e.org_id AS org, e.audience, e.hidden_from AS "hiddenFrom", e.trace,
  e.parts, e.left_parts AS "leftParts",
  extract(epoch FROM e.inserted_at)::float8 * 1000 AS "insertedAt",
  convert_from(CASE WHEN ${unwanted} OR e.payload_bytes > ${limit} THEN NULL
       WHEN e.payload IS NULL AND e.op = 'upsert'
         THEN (SELECT d.payload FROM runtime.${model.table} d
               WHERE d.org_id = e.org_id AND d.doc_key = e.doc_key AND d.doc_version = e.doc_version)
       ELSE e.payload END, 'UTF8') AS payload`;

const SIZED = (limit: string) => `sum(least(payload_bytes, ${limit})) OVER (ORDER BY watermark) AS total,
  row_number() OVER (ORDER BY watermark) AS nth`;

// Watermarks are dense, so the page ends `rows` further on: without that end, a planner without statistics may sort all the rest.
function readStatement(model: Model, after: bigint, limits: ReadLimits): Statement {
  return {
    name: `sync_read_${model.table}`,
    text: `SELECT ${ROW(model, "$5")} FROM (
        SELECT *, ${SIZED("$5")} FROM (
          SELECT * FROM runtime.sync_stream_events WHERE topic = $1 AND watermark > $2
            AND watermark <= greatest($2, (SELECT floor FROM runtime.sync_topic_sequences WHERE topic = $1)) + $3
          ORDER BY watermark LIMIT $3
        ) page
      ) e WHERE nth = 1 OR total <= $4 ORDER BY e.watermark`,
    values: [model.topic, after, limits.rows, limits.bytes, limits.payloadBytes],
  };
}

// Each named row is looked up by itself: as a plain join, a planner without statistics reads the whole journal for it. The org is
// compared outside: inside, that planner would read all rows of the org.
function wantedStatement(model: Model, wants: readonly Want[], limits: ReadLimits): Statement {
  const ofParts = wants.some(({ part }) => part);
  return {
    name: `sync_wanted_${ofParts ? "parts_" : ""}${model.table}`,
    text: `SELECT e.want, e.cut AS full, e.dropped, ${ROW(model, "$8", "e.dropped")} FROM (
      SELECT w.n::int AS want, own.*,
        sum(least(own.payload_bytes, $8)) OVER (ORDER BY w.n, own.watermark) > $6 AS dropped
      FROM unnest($2::text[], $3::text[], $4::bigint[], $5::int[]${ofParts ? ", $9::text[], $10::text[]" : ""})
        WITH ORDINALITY AS w(org_id, subject, after, bytes${ofParts ? ", part, doc_key" : ""}, n)
      CROSS JOIN LATERAL (
        SELECT sized.*, bool_or(sized.nth >= $7 OR sized.total > w.bytes) OVER () AS cut FROM (
          SELECT *, ${SIZED("$8")} FROM (
            (SELECT * FROM runtime.sync_stream_events
             WHERE w.subject IS NULL${ofParts ? " AND w.part IS NULL AND w.doc_key IS NULL" : ""} AND topic = $1 AND org_id = w.org_id AND audience IS NULL AND watermark > w.after
             ORDER BY watermark LIMIT $7)
            UNION ALL
            (SELECT j.* FROM (
               SELECT v.watermark FROM runtime.sync_stream_viewers v
               WHERE w.subject IS NOT NULL AND v.topic = $1 AND v.org_id = w.org_id AND v.subject = w.subject AND v.watermark > w.after
               ORDER BY v.watermark LIMIT $7
             ) named
             CROSS JOIN LATERAL (SELECT * FROM runtime.sync_stream_events WHERE topic = $1 AND watermark = named.watermark LIMIT 1) j
             WHERE j.org_id = w.org_id)${ofParts ? OF_PARTS : ""}
          ) page
        ) sized
      ) own
      WHERE own.nth = 1 OR own.total <= w.bytes
    ) e ORDER BY e.want, e.watermark`,
    values: [
      model.topic,
      wants.map((want) => want.org),
      wants.map((want) => want.subject),
      wants.map((want) => want.after),
      wants.map((want) => want.bytes),
      limits.bytes,
      limits.rows,
      limits.payloadBytes,
      ...(ofParts
        ? [
            wants.map(({ part }) => (part && docKeyOf(part) === undefined ? partLabel(part[0]) : null)),
            wants.map(({ part }) => (part && docKeyOf(part)) ?? null),
          ]
        : []),
    ],
  };
}

const OF_PARTS = `
            UNION ALL
            (SELECT j.* FROM (
               SELECT p.watermark FROM runtime.sync_stream_parts p
               WHERE w.part IS NOT NULL AND p.topic = $1 AND p.org_id = w.org_id AND p.part = w.part AND p.watermark > w.after
               ORDER BY p.watermark LIMIT $7
             ) mine
             CROSS JOIN LATERAL (SELECT * FROM runtime.sync_stream_events WHERE topic = $1 AND watermark = mine.watermark LIMIT 1) j
             WHERE j.org_id = w.org_id)
            UNION ALL
            (SELECT * FROM runtime.sync_stream_events
             WHERE w.doc_key IS NOT NULL AND topic = $1 AND org_id = w.org_id AND doc_key = w.doc_key AND watermark > w.after
             ORDER BY watermark LIMIT $7)`;
