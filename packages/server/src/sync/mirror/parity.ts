import type { Database } from "../../database/database.ts";
import { documentId, type Model } from "../model.ts";
import { BEFORE_ALL, type DocumentName } from "../read/read_models.ts";
import type { MirroredDocument, MirrorReader } from "./mirror.ts";
import { readPosition } from "./mirror_source.ts";

/** A version of a document, by number and hash. */
export interface DocumentMark {
  readonly version: bigint;
  readonly hash: string | null;
}

/** A document that is not the same on both sides; null where it does not exist. */
export interface DocumentDifference {
  readonly org: string;
  readonly docKey: string;
  readonly ours: DocumentMark | null;
  readonly theirs: DocumentMark | null;
}

/** The number of differences of one kind, and some examples. */
export interface Findings {
  readonly count: number;
  readonly examples: readonly DocumentDifference[];
}

/** How one topic in the mirror compares with Postgres. */
export interface TopicParity {
  readonly topic: string;
  /** Documents in Postgres. */
  readonly documents: number;
  readonly equal: number;
  readonly differing: Findings;
  /** Only in Postgres. */
  readonly missing: Findings;
  /** Only in the mirror. */
  readonly extra: Findings;
  /** Different because the mirror is behind. */
  readonly behind: Findings;
  readonly lag: Lag;
}

/** The lag of the mirror. */
export interface Lag {
  /** False before the first full copy is complete. */
  readonly following: boolean;
  /** Journal rows that it does not have yet. */
  readonly rows: bigint;
  /** Age of the oldest of them. */
  readonly ms: number;
}

/** The result of a comparison. */
export interface ParityReport {
  readonly sink: string;
  /** Nothing differs, is missing or extra; the mirror may still be behind. */
  readonly equal: boolean;
  readonly topics: readonly TopicParity[];
}

export interface ParityOptions {
  readonly reader: MirrorReader;
  readonly models: readonly Model[];
  readonly signal: AbortSignal;
  /** Called after each page of documents. */
  readonly onProgress?: (progress: { topic: string; documents: number }) => void;
}

const PAGE = 500;
const EXAMPLES = 20;

/** Compares every document of the models with the mirror, while writes continue. */
export async function compareWithMirror(database: Database, options: ParityOptions): Promise<ParityReport> {
  const topics: TopicParity[] = [];
  for (const model of options.models) topics.push(await compareTopic(database, model, options));
  const equal = topics.every((t) => t.differing.count + t.missing.count + t.extra.count === 0);
  return { sink: options.reader.name, equal, topics };
}

async function compareTopic(database: Database, model: Model, options: ParityOptions): Promise<TopicParity> {
  const { reader, signal, onProgress } = options;
  const { topic } = model;
  // The position is read first, then the mirror, then Postgres: the mirror has at least the position, and Postgres is never older.
  const place = await readPosition(database, topic, reader.name);
  const lag = await readLag(database, topic, place);
  const count = new Count(place.watermark);
  for (let after = BEFORE_ALL; ; ) {
    signal.throwIfAborted();
    const theirs = await reader.held(topic, after, PAGE, signal);
    checkOrder(theirs, after, reader.name);
    const last = theirs.at(-1);
    const held = new Map(theirs.map((document) => [documentId(document), document]));
    for await (const row of ourDocuments(database, model, after, last)) {
      count.compare(row, held.get(documentId(row)));
      held.delete(documentId(row));
    }
    for (const document of held.values()) count.extra.add(document, null, theirMark(document));
    onProgress?.({ topic, documents: count.documents });
    if (last === undefined) break;
    after = last;
  }
  const { documents, equal, differing, missing, extra, behind } = count;
  return { topic, documents, equal, differing, missing, extra, behind, lag };
}

class Found implements Findings {
  count = 0;
  readonly examples: DocumentDifference[] = [];

  add({ org, docKey }: DocumentName, ours: DocumentMark | null, theirs: DocumentMark | null): void {
    if (this.count++ < EXAMPLES) this.examples.push({ org, docKey, ours, theirs });
  }
}

class Count {
  documents = 0;
  equal = 0;
  readonly differing = new Found();
  readonly missing = new Found();
  readonly extra = new Found();
  readonly behind = new Found();
  readonly #place: bigint | null;

  constructor(place: bigint | null) {
    this.#place = place;
  }

  compare(row: OurRow, held: MirroredDocument | undefined): void {
    if (!row.deleted) this.documents++;
    const ours = row.deleted ? null : { version: row.docVersion, hash: row.payloadHash };
    const theirs = held ? theirMark(held) : null;
    if (ours?.version === theirs?.version && ours?.hash === theirs?.hash) {
      if (ours) this.equal++;
      return;
    }
    const untold = this.#place !== null && row.watermark > this.#place;
    const kind = untold ? this.behind : ours === null ? this.extra : theirs ? this.differing : this.missing;
    kind.add(row, ours, theirs);
  }
}

const theirMark = (held: MirroredDocument): DocumentMark => ({
  version: held.docVersion,
  hash: held.payloadHash,
});

/** Both sides must have the same order, or the comparison finds false differences. */
function checkOrder(page: readonly MirroredDocument[], after: DocumentName, sink: string): void {
  let before = after;
  for (const document of page) {
    const order = compareBytes(before.org, document.org) || compareBytes(before.docKey, document.docKey);
    if (order >= 0) {
      const place = `${nameText(document)} came after ${nameText(before)}`;
      throw new Error(
        `${sink} must list its documents in the order of the UTF-8 bytes of their orgs and keys, but ${place}.`,
      );
    }
    before = document;
  }
}

const compareBytes = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));
const nameText = ({ org, docKey }: DocumentName): string =>
  `${JSON.stringify(docKey)} of ${JSON.stringify(org)}`;

interface OurRow extends DocumentName {
  readonly docVersion: bigint;
  readonly payloadHash: string | null;
  readonly deleted: boolean;
  readonly watermark: bigint;
}

/** Documents in Postgres between two, tombstones included. */
async function* ourDocuments(
  database: Database,
  model: Model,
  after: DocumentName,
  upTo: DocumentName | undefined,
): AsyncIterable<OurRow> {
  for (let from = after; ; ) {
    const rows = await database.query<OurRow>({
      name: `parity_${model.table}`,
      text: `SELECT org_id AS org, doc_key AS "docKey", doc_version AS "docVersion", encode(payload_hash, 'hex') AS "payloadHash", deleted,
          watermark
        FROM runtime.${model.table}
        WHERE (org_id, doc_key) > ($1, $2) AND ($3::text IS NULL OR (org_id, doc_key) <= ($3, $4))
        ORDER BY org_id, doc_key LIMIT $5`,
      values: [from.org, from.docKey, upTo?.org ?? null, upTo?.docKey ?? null, PAGE],
    });
    yield* rows;
    if (rows.length < PAGE) return;
    from = rows.at(-1)!;
  }
}

async function readLag(
  database: Database,
  topic: string,
  { watermark, head, floor }: { watermark: bigint | null; head: bigint; floor: bigint },
): Promise<Lag> {
  const from = watermark ?? floor;
  const [oldest] = await database.query<{ ms: number }>({
    text: `SELECT extract(epoch FROM now() - inserted_at)::float8 * 1000 AS ms FROM runtime.sync_stream_events
      WHERE topic = $1 AND watermark > $2 ORDER BY watermark LIMIT 1`,
    values: [topic, from],
  });
  return { following: watermark !== null, rows: head - from, ms: Math.max(0, Math.round(oldest?.ms ?? 0)) };
}

/** The report as text: one line per topic and per example. */
export function parityLines(report: ParityReport): string[] {
  return report.topics.flatMap((topic) => [
    `${topic.topic}: ${topic.documents} documents, ${topic.equal} equal, ${topic.differing.count} differing, ` +
      `${topic.missing.count} missing, ${topic.extra.count} extra, ${topic.behind.count} behind; ${lagText(topic.lag)}`,
    ...(["differing", "missing", "extra", "behind"] as const).flatMap((kind) => {
      const { count, examples } = topic[kind];
      const lines = examples.map(
        ({ org, docKey, ours, theirs }) =>
          `  ${kind.padEnd(9)} ${org} ${docKey}  ours: ${markText(ours)}  theirs: ${markText(theirs)}`,
      );
      return count > examples.length
        ? [...lines, `  ${kind.padEnd(9)} and ${count - examples.length} more`]
        : lines;
    }),
  ]);
}

function lagText({ following, rows, ms }: Lag): string {
  if (!following) return "the mirror is not following yet";
  return rows === 0n ? "no lag" : `${rows} updates are on their way, the oldest for ${ms} ms`;
}

const markText = (mark: DocumentMark | null): string =>
  mark ? `version ${mark.version}, hash ${mark.hash?.slice(0, 12) ?? "none"}` : "none";
