import { testContext } from "@khala/test-support/kit/context";
import { writeDocuments } from "@khala/test-support/postgres/write_documents";
import { vi } from "vitest";
import type { Database } from "../database/database.ts";
import { type Authority, type NewEvent, openAuthority, readEvents } from "../events/authority.ts";
import { runs } from "../events/streams.ts";
import type { Context } from "../kit/context.ts";
import type { WireFrame } from "../kit/wire_frame.ts";
import { type SyncMetrics, syncMetrics } from "./metrics.ts";
import type { Model } from "./model.ts";
import { type CurrentDocument, createReadModels } from "./read/read_models.ts";
import { foldEvents } from "./write/projection.ts";
import { type Projector, type ProjectorOptions, startProjector } from "./write/projector.ts";
import { openSink, type Sink, type Written } from "./write/sink.ts";
import type { DocumentWrite } from "./write/write_statement.ts";

/** A process's part of the sync plane, without feeds and gateway. */
export interface SyncParts extends AsyncDisposable {
  readonly context: Context;
  readonly authority: Authority;
  readonly sink: Sink;
  readonly metrics: SyncMetrics;
  /** Writes documents in one transaction, as a projection would. */
  write(model: Model, ...writes: readonly DocumentWrite[]): Promise<Written[]>;
  /** Starts a projector that is stopped with the parts. */
  project(model: Model, options?: Partial<ProjectorOptions>): Projector;
}

/** Opens authority and sink on a test's database. Projectors are woken by appends, as in a server. */
export async function syncParts(
  database: Database,
  { models = [], inline = true }: { models?: readonly Model[]; inline?: boolean } = {},
): Promise<SyncParts> {
  const context = await testContext();
  await createReadModels(database, models);
  const projectors: Projector[] = [];
  const metrics = syncMetrics(context.telemetry.meter);
  const authority = openAuthority(database, context);
  authority.onAppend(() => {
    for (const projector of projectors) projector.wake();
  });
  const sink = openSink(database, context, { inline, metrics, onCommit: () => {} });
  return {
    context,
    authority,
    sink,
    metrics,
    write: (model, ...writes) => writeDocuments(database, sink, model, writes),
    project(model, options = {}) {
      const projector = startProjector(model, context, {
        database,
        authority,
        sink,
        retryMs: 20,
        active: () => true,
        ...options,
      });
      projectors.push(projector);
      return projector;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(projectors.map((projector) => projector.stop()));
      await authority.drain();
    },
  };
}

/** Appends events to a run at any sequence, of the org "acme" by default. */
export function appendRun(
  authority: Authority,
  streamId: string,
  events: readonly NewEvent[],
  org = "acme",
): Promise<bigint> {
  return authority.append({ stream: runs, streamId, events, org, actor: "ada" });
}

/** A document, without what a reprojection or a retry may change about it. */
export interface PlainDocument {
  readonly payload: string;
  readonly org: string;
  readonly audience: readonly string[] | null;
}

/** The live documents of a read model, by key: those of the org "acme" under their key alone, others with their org before it. */
export async function liveDocuments(database: Database, model: Model): Promise<Map<string, PlainDocument>> {
  const rows = await database.query<PlainDocument & { key: string }>({
    text: `SELECT doc_key AS key, convert_from(payload, 'UTF8') AS payload, org_id AS org, audience
      FROM runtime.${model.table} WHERE NOT deleted`,
  });
  return new Map(rows.map(({ key, ...document }) => [nameOf(document.org, key), document]));
}

/** The documents a model makes of the whole log, in memory. */
export async function foldOf(database: Database, model: Model): Promise<Map<string, PlainDocument>> {
  const documents = new Map<string, CurrentDocument>();
  const payloads = new Map<string, PlainDocument>();
  const events = await readEvents(database, 0n, 1_000_000);
  for (const { docKey, op, payload, org, audience } of foldEvents(model, events, documents, new Set())
    .writes) {
    if (op === "delete") payloads.delete(nameOf(org, docKey));
    else payloads.set(nameOf(org, docKey), { payload: payload!, org, audience });
  }
  return payloads;
}

function nameOf(org: string, key: string): string {
  return org === "acme" ? key : `${org} ${key}`;
}

function sorted(documents: Map<string, PlainDocument>): [string, PlainDocument][] {
  return [...documents].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Resolves once the projection has stored every event of the log that changes something. */
export async function projected(database: Database, model: Model): Promise<void> {
  await vi.waitFor(
    async () => {
      const [live, whole] = [await liveDocuments(database, model), await foldOf(database, model)];
      if (JSON.stringify(sorted(live)) !== JSON.stringify(sorted(whole)))
        throw new Error("not projected yet");
    },
    { timeout: 30_000, interval: 20 },
  );
}

/** A row of the journal, in the form tests compare. */
export interface JournalEntry {
  readonly watermark: bigint;
  readonly key: string;
  readonly version: bigint;
  readonly op: string;
  readonly payload: string | null;
  readonly org: string;
  readonly audience: readonly string[] | null;
  readonly hiddenFrom: readonly string[] | null;
}

/** The journal of a topic after a watermark. */
export function journalOf(database: Database, topic: string, after = 0n): Promise<JournalEntry[]> {
  return database.query<JournalEntry>({
    text: `SELECT watermark, doc_key AS key, doc_version AS version, op, convert_from(payload, 'UTF8') AS payload,
        org_id AS org, audience, hidden_from AS "hiddenFrom"
      FROM runtime.sync_stream_events WHERE topic = $1 AND watermark > $2 ORDER BY watermark`,
    values: [topic, after],
  });
}

/** The newest watermark of a topic. */
export async function headOf(database: Database, topic: string): Promise<bigint> {
  const text = "SELECT next_watermark AS head FROM runtime.sync_topic_sequences WHERE topic = $1";
  const [row] = await database.query<{ head: bigint }>({ text, values: [topic] });
  return row!.head;
}

/** The message in a frame, as the viewer with these rights gets it. */
export function stampedMessage({ bytes, stamped }: WireFrame, rights: string): Buffer {
  const short = bytes[1]!;
  const head = short < 126 ? 2 : short === 126 ? 4 : 10;
  return Buffer.concat([stamped!.before.subarray(head), Buffer.from(rights), stamped!.after]);
}
