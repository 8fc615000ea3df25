import type { Database } from "../../database/database.ts";
import { type AuthorityEvent, ERASED } from "../../events/stream.ts";
import { runs } from "../../events/streams.ts";
import type { Model } from "../model.ts";
import type { DocumentName } from "../read/read_models.ts";
import { documentsOf } from "../write/projection.ts";
import { type DocumentWrite, lockProjection, writeDocuments } from "../write/write_statement.ts";

/** A subject of an org, and where to continue in the log. */
export interface ErasureStep {
  readonly org: string;
  readonly subject: string;
  /** Events up to this position are done. */
  readonly after: bigint;
  /** Counts, and changes nothing. */
  readonly dryRun: boolean;
}

/** The data a step found and, except in a dry run, erased. */
export interface ErasedEvents {
  readonly events: number;
  readonly documents: number;
  /** Topics with documents that the subject had a part in, and others too: only a rebuild takes that part out. */
  readonly shared: readonly string[];
  /** Topics whose documents changed. */
  readonly changed: ReadonlyMap<string, number>;
  /** Where to continue; undefined at the end of the log. */
  readonly next: bigint | undefined;
}

/** Positions of the log per step. */
const POSITIONS = 5_000;

const EVENT = `position, kind, stream_id AS "streamId", seq, type, data, org_id AS org, owner, actor, trace,
  to_char(inserted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at`;

/**
 * Redacts the events of a subject in a stretch of the log, deletes the documents of its streams, and removes the payloads of their
 * history from the journal. Events stay as numbers without type and data, so that positions and sequences have no gap.
 */
export async function eraseEvents(
  database: Pick<Database, "interactive" | "transaction">,
  models: readonly Model[],
  { org, subject, after, dryRun }: ErasureStep,
  inline: boolean,
): Promise<ErasedEvents> {
  const upTo = after + BigInt(POSITIONS);
  const head = await disown(database, { org, subject, after, dryRun }, upTo);
  return database.interactive(async (tx) => {
    const events = await tx.query<AuthorityEvent>({
      name: "erase_find_events",
      text: `SELECT ${EVENT} FROM runtime.events
        WHERE position > $1 AND position <= $2 AND org_id = $3 AND (owner = $4 OR actor = $4) ORDER BY position`,
      values: [after, upTo < head ? upTo : head, org, subject],
    });
    const own = events.filter(({ owner }) => owner === subject);
    const erased = await eraseFound(tx, models, { events, own, org, subject, dryRun, inline });
    return { ...erased, next: upTo < head ? upTo : undefined };
  });
}

/** Does the same with the streams of runs that a subject started in conversations of others, who own these streams. */
export async function eraseRuns(
  database: Pick<Database, "interactive">,
  models: readonly Model[],
  {
    org,
    subject,
    runIds,
  }: { readonly org: string; readonly subject: string; readonly runIds: readonly string[] },
  inline: boolean,
): Promise<Omit<ErasedEvents, "next">> {
  return database.interactive(async (tx) => {
    const events = await tx.query<AuthorityEvent>({
      name: "erase_find_runs",
      text: `SELECT ${EVENT} FROM runtime.events
        WHERE org_id = $1 AND kind = $2 AND stream_id = ANY($3::text[]) AND type <> $4 ORDER BY position`,
      values: [org, runs.kind, runIds, ERASED],
    });
    return eraseFound(tx, models, { events, own: events, org, subject, dryRun: false, inline });
  });
}

interface Stretch {
  readonly events: readonly AuthorityEvent[];
  /** The events of the subject's own streams. */
  readonly own: readonly AuthorityEvent[];
  readonly org: string;
  readonly subject: string;
  readonly dryRun: boolean;
  readonly inline: boolean;
}

async function eraseFound(tx: Tx, models: readonly Model[], stretch: Stretch) {
  const { events, org, dryRun } = stretch;
  const shared: string[] = [];
  const changed = new Map<string, number>();
  let documents = 0;
  if (events.length > 0) {
    // In one order, so that two erasures do not wait for each other.
    for (const model of [...models].sort((a, b) => (a.topic < b.topic ? -1 : 1))) {
      const found = await eraseDocuments(tx, model, stretch);
      documents += found.deleted;
      if (found.deleted > 0) changed.set(model.topic, found.deleted);
      if (found.isShared) shared.push(model.topic);
    }
    if (!dryRun) await redact(tx, org, events);
  }
  return { events: events.length, documents, shared, changed };
}

type Tx = Pick<Database, "query">;

async function eraseDocuments(
  tx: Tx,
  model: Model,
  { events, own: ownEvents, org, subject, dryRun, inline }: Stretch,
): Promise<{ deleted: number; isShared: boolean }> {
  const own = documentsOf(model, ownEvents);
  const others = documentsOf(
    model,
    events.filter((event) => !ownEvents.includes(event)),
  );
  for (const id of own.keys()) others.delete(id);
  if (own.size === 0 && others.size === 0) return { deleted: 0, isShared: false };
  if (!dryRun) await tx.query(lockProjection(model.topic));
  const names = [...own.values()];
  const found = await tx.query<DocumentName & { version: bigint; audience: readonly string[] | null }>({
    name: `erase_documents_${model.table}`,
    text: `SELECT org_id AS org, doc_key AS "docKey", doc_version AS version, audience FROM runtime.${model.table}
      WHERE org_id = $1 AND doc_key = ANY($2::text[]) AND NOT deleted`,
    values: [org, names.map(({ docKey }) => docKey)],
  });
  // A document is the subject's if it is that of its stream, or for its eyes alone. In any other, others may have a part.
  const ofStreams = new Set(ownEvents.map(({ streamId }) => `${model.prefix}:${streamId}`));
  const live = found.filter(
    ({ docKey, audience }) => ofStreams.has(docKey) || (audience?.length === 1 && audience[0] === subject),
  );
  const isShared = others.size > 0 || live.length < found.length;
  if (dryRun) return { deleted: live.length, isShared };
  const writes = live.map(
    ({ docKey, version }): DocumentWrite => ({
      docKey,
      docVersion: version + 1n,
      op: "delete",
      org,
      audience: null,
    }),
  );
  if (writes.length > 0) await tx.query(writeDocuments(model, writes, inline));
  const touched = [...names, ...others.values()].map(({ docKey }) => docKey);
  await tx.query({
    name: "erase_journal",
    text: `UPDATE runtime.sync_stream_events SET payload = NULL
      WHERE topic = $1 AND org_id = $2 AND doc_key = ANY($3::text[]) AND payload IS NOT NULL`,
    values: [model.topic, org, touched],
  });
  // A rebuild that has read the events before would bring their documents back: it starts over.
  await tx.query({
    name: "erase_reprojection",
    text: "DELETE FROM runtime.sync_reprojections WHERE topic = $1",
    values: [model.topic],
  });
  await tx.query({
    name: "erase_rebuilt_documents",
    text: "DELETE FROM runtime.sync_rebuilt_documents WHERE topic = $1 AND org_id = $2 AND doc_key = ANY($3::text[])",
    values: [model.topic, org, touched],
  });
  await tx.query({
    name: "erase_expiries",
    text: "DELETE FROM runtime.sync_expiries WHERE topic = $1 AND org_id = $2 AND doc_key = ANY($3::text[])",
    values: [model.topic, org, live.map(({ docKey }) => docKey)],
  });
  // The projector reads documents and events again before it commits.
  await tx.query({
    name: "erase_generation",
    text: "UPDATE runtime.sync_checkpoints SET generation = generation + 1 WHERE topic = $1",
    values: [model.topic],
  });
  return { deleted: live.length, isShared };
}

async function redact(tx: Tx, org: string, events: readonly AuthorityEvent[]): Promise<void> {
  await tx.query({
    name: "erase_events",
    text: `UPDATE runtime.events SET type = $3, data = '{}', event_id = 'erased:' || seq, owner = '', actor = '', trace = NULL
      WHERE org_id = $1 AND position = ANY($2::bigint[])`,
    values: [org, events.map(({ position }) => position), ERASED],
  });
}

/**
 * Takes its streams from the subject, so that nobody but a service appends to them or reads them, and returns the head of the
 * log. It commits before the events are read, and locks appends out meanwhile: each of them is up to the head, or in a stream
 * without an owner.
 */
async function disown(
  database: Pick<Database, "transaction">,
  { org, subject, after, dryRun }: ErasureStep,
  upTo: bigint,
): Promise<bigint> {
  const lock = { name: "erase_lock_log", text: "SELECT position FROM runtime.event_log_head FOR UPDATE" };
  const streams = {
    name: "erase_streams",
    text: `UPDATE runtime.event_streams s SET owner = '' FROM (
        SELECT DISTINCT kind, stream_id FROM runtime.events
        WHERE position > $3 AND position <= $4 AND org_id = $1 AND owner = $2
      ) e
      WHERE s.org_id = $1 AND s.kind = e.kind AND s.stream_id = e.stream_id AND s.owner = $2`,
    values: [org, subject, after, upTo],
  };
  const [rows] = await database.transaction(dryRun ? [lock] : [lock, streams]);
  return rows![0]!.position as bigint;
}
