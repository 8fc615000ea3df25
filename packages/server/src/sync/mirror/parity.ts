import type { Database } from "../../database/database.ts";
import type { Model } from "../model.ts";
import type { MirroredDocument, MirrorReader } from "./mirror.ts";
import { readPosition } from "./mirror_source.ts";

/** A version of a document, by number and hash. */
export interface DocumentMark {
  readonly version: bigint;
  readonly hash: string | null;
}

/** A document that is not the same on both sides; null where it does not exist. */
export interface DocumentDifference {
  readonly docKey: string;
  readonly ours: DocumentMark | null;
  readonly theirs: DocumentMark | null;
}

/** All of one kind are counted; some are shown. */
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
  /** In Postgres alone. */
  readonly missing: Findings;
  /** In the mirror alone. */
  readonly extra: Findings;
  /** Not the same, but only because the mirror has not been told yet. */
  readonly behind: Findings;
  readonly lag: Lag;
}

/** How far the mirror is behind. */
export interface Lag {
  /** False while it is not told of this topic at all, or is being told of everything from the start. */
  readonly following: boolean;
  /** Journal rows that it has not got. */
  readonly rows: bigint;
  /** Age of the oldest of them. */
  readonly ms: number;
}

/** What a comparison found. */
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

/** Compares every document of the models with what a mirror holds. Writers may go on meanwhile. */
export async function compareWithMirror(database: Database, options: ParityOptions): Promise<ParityReport> {
  const topics: TopicParity[] = [];
  for (const model of options.models) topics.push(await compareTopic(database, model, options));
  const equal = topics.every((t) => t.differing.count + t.missing.count + t.extra.count === 0);
  return { sink: options.reader.name, equal, topics };
}

async function compareTopic(database: Database, model: Model, options: ParityOptions): Promise<TopicParity> {
  const { reader, signal, onProgress } = options;
  const { topic } = model;
  // The place first, then theirs, then ours: what was published up to the place must be in theirs, and ours is never older.
  const place = await readPosition(database, topic, reader.name);
  const lag = await readLag(database, topic, place);
  const count = new Count(place.watermark);
  for (let after = ""; ; ) {
    signal.throwIfAborted();
    const theirs = await reader.held(topic, after, PAGE, signal);
    checkOrder(theirs, after, reader.name);
    const last = theirs.at(-1)?.docKey;
    const held = new Map(theirs.map((document) => [document.docKey, document]));
    for await (const row of ourDocuments(database, model, after, last)) {
      count.compare(row, held.get(row.docKey));
      held.delete(row.docKey);
    }
    for (const document of held.values()) count.extra.add(document.docKey, null, theirMark(document));
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

  add(docKey: string, ours: DocumentMark | null, theirs: DocumentMark | null): void {
    if (this.count++ < EXAMPLES) this.examples.push({ docKey, ours, theirs });
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
    kind.add(row.docKey, ours, theirs);
  }
}

const theirMark = (held: MirroredDocument): DocumentMark => ({
  version: held.docVersion,
  hash: held.payloadHash,
});

/** Both sides are read in the same order: one that is not would find differences that are none. */
function checkOrder(page: readonly MirroredDocument[], after: string, sink: string): void {
  let before = Buffer.from(after);
  for (const { docKey } of page) {
    const key = Buffer.from(docKey);
    if (Buffer.compare(before, key) >= 0) {
      const place = `${JSON.stringify(docKey)} came after ${JSON.stringify(before.toString())}`;
      throw new Error(
        `${sink} must list its documents in the order of their keys' UTF-8 bytes, but ${place}.`,
      );
    }
    before = key;
  }
}

interface OurRow {
  readonly docKey: string;
  readonly docVersion: bigint;
  readonly payloadHash: string | null;
  readonly deleted: boolean;
  readonly watermark: bigint;
}

/** Our documents after a key, tombstones included, up to another or to the end. */
async function* ourDocuments(
  database: Database,
  model: Model,
  after: string,
  upTo: string | undefined,
): AsyncIterable<OurRow> {
  for (let from = after; ; ) {
    const rows = await database.query<OurRow>({
      name: `parity_${model.table}`,
      text: `SELECT doc_key AS "docKey", doc_version AS "docVersion", encode(payload_hash, 'hex') AS "payloadHash", deleted,
          watermark
        FROM runtime.${model.table} WHERE doc_key > $1 AND ($2::text IS NULL OR doc_key <= $2) ORDER BY doc_key LIMIT $3`,
      values: [from, upTo ?? null, PAGE],
    });
    yield* rows;
    if (rows.length < PAGE) return;
    from = rows.at(-1)!.docKey;
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

/** The report for a person: one line per topic, and one for each document that is shown. */
export function parityLines(report: ParityReport): string[] {
  return report.topics.flatMap((topic) => [
    `${topic.topic}: ${topic.documents} documents, ${topic.equal} equal, ${topic.differing.count} differing, ` +
      `${topic.missing.count} missing, ${topic.extra.count} extra, ${topic.behind.count} behind; ${lagText(topic.lag)}`,
    ...(["differing", "missing", "extra", "behind"] as const).flatMap((kind) => {
      const { count, examples } = topic[kind];
      const lines = examples.map(
        ({ docKey, ours, theirs }) =>
          `  ${kind.padEnd(9)} ${docKey}  ours: ${markText(ours)}  theirs: ${markText(theirs)}`,
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
