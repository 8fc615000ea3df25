import { may } from "../access/access.ts";
import type { Database } from "../database/database.ts";
import type { Outcome } from "../kit/group_commit.ts";
import { NOW } from "./pages.ts";
import {
  type Append,
  type AppendOutcome,
  type Claim,
  mediaType,
  type Stream,
  type StreamName,
} from "./stream.ts";

type Tx = Pick<Database, "query">;

interface Producer extends Accepted {
  readonly stream: bigint;
  readonly producer: string;
}

/** The changes of a batch. */
interface Changes {
  readonly chunks: { stream: bigint; position: bigint; data: Buffer; writtenAt: bigint }[];
  readonly producers: Map<string, Producer>;
  readonly streams: Set<LockedStream>;
}

/**
 * Commits appends in order, with their streams locked from the decision to the commit. Returns one outcome each, and the
 * changed streams.
 */
export async function commitAppends(
  database: Database,
  appends: readonly Append[],
): Promise<{ outcomes: Outcome[]; changed: bigint[] }> {
  return database.interactive(async (tx) => {
    const streams = await lockStreams(tx, appends);
    const known = await readProducers(tx, streams, appends);
    const changes: Changes = { chunks: [], producers: new Map(), streams: new Set() };
    const outcomes = appends.map((append) => {
      const { caller } = append.name;
      const stream = streams.get(streamKey(append.name));
      const writable =
        stream && may(caller, "durable_stream.write", { org: caller.org, owner: stream.owner });
      if (!writable) return { ok: { kind: "missing" } };
      return { ok: stream.gone ? { kind: "gone" } : apply(stream, append, known, changes) };
    });
    await storeChanges(tx, changes);
    return { outcomes, changed: [...changes.streams].map(({ id }) => id) };
  });
}

/** Decides about one append and records its changes, which later appends of the batch see. */
function apply(
  stream: LockedStream,
  append: Append,
  known: Map<string, Accepted>,
  changes: Changes,
): AppendOutcome {
  const { claim, data, close, seq } = append;
  const key = claim && producerKey(stream.id, claim.producer);
  const outcome = decideAppend(stream, key === undefined ? undefined : known.get(key), append);
  if (outcome.kind !== "appended") return outcome;
  changes.streams.add(stream);
  const { tail, writtenAt } = outcome;
  if (data.length > 0) changes.chunks.push({ stream: stream.id, position: tail, data, writtenAt });
  if (claim && key !== undefined) {
    known.set(key, claim);
    changes.producers.set(key, { stream: stream.id, ...claim });
  }
  stream.tail = tail;
  stream.writtenAt = writtenAt;
  if (seq !== undefined) stream.seq = seq;
  if (close && !stream.closed) {
    stream.closed = true;
    stream.closedBy = claim;
  }
  return outcome;
}

/** Locks the streams in the order of their ids, to avoid deadlocks between batches. */
async function lockStreams(tx: Tx, appends: readonly Append[]): Promise<Map<string, LockedStream>> {
  const names = [...new Map(appends.map(({ name }) => [streamKey(name), name])).values()];
  const rows = await tx.query<LockedRow>({
    name: "durable_streams_lock",
    text: `SELECT id, org_id, path, owner, content_type, ttl_s, expires_at, closed, tail, written_at, gone, seq,
        closed_by, closed_epoch, closed_seq, greatest(written_at, ${NOW}) AS now
      FROM runtime.durable_streams AS stream
      JOIN unnest($1::text[], $2::text[]) AS wanted (org_id, path) USING (org_id, path)
      WHERE dies_at IS NULL OR dies_at > clock_timestamp()
      ORDER BY id FOR NO KEY UPDATE OF stream`,
    values: [names.map(({ caller }) => caller.org), names.map(({ path }) => path)],
  });
  return new Map(rows.map((row) => [keyOf(row.org_id, row.path), lockedStream(row)]));
}

interface LockedRow {
  id: bigint;
  org_id: string;
  path: string;
  owner: string;
  content_type: string;
  ttl_s: bigint | null;
  expires_at: string | null;
  closed: boolean;
  tail: bigint;
  written_at: bigint;
  now: bigint;
  gone: boolean;
  seq: string | null;
  closed_by: string | null;
  closed_epoch: bigint | null;
  closed_seq: bigint | null;
}

function lockedStream(row: LockedRow): LockedStream {
  const { id, tail, closed, closed_by: producer, closed_epoch: epoch, closed_seq: seq } = row;
  return {
    id,
    owner: row.owner,
    gone: row.gone,
    tail,
    writtenAt: row.written_at,
    now: row.now,
    closed,
    contentType: row.content_type,
    ttlS: row.ttl_s ?? undefined,
    expiresAt: row.expires_at ?? undefined,
    seq: row.seq ?? undefined,
    closedBy: producer !== null && epoch !== null && seq !== null ? { producer, epoch, seq } : undefined,
  };
}

async function readProducers(
  tx: Tx,
  streams: Map<string, LockedStream>,
  appends: readonly Append[],
): Promise<Map<string, Accepted>> {
  const wanted = appends.flatMap(({ name, claim }) => {
    const stream = claim && streams.get(streamKey(name));
    return stream ? [{ stream: stream.id, producer: claim.producer }] : [];
  });
  if (wanted.length === 0) return new Map();
  const rows = await tx.query<{ stream_id: bigint; producer_id: string; epoch: bigint; seq: bigint }>({
    name: "durable_streams_producers",
    text: `SELECT stream_id, producer_id, epoch, seq FROM runtime.durable_stream_producers
      JOIN unnest($1::bigint[], $2::text[]) AS wanted (stream_id, producer_id) USING (stream_id, producer_id)`,
    values: [wanted.map(({ stream }) => stream), wanted.map(({ producer }) => producer)],
  });
  return new Map(
    rows.map(({ stream_id, producer_id, ...last }) => [producerKey(stream_id, producer_id), last]),
  );
}

async function storeChanges(tx: Tx, { chunks, producers, streams }: Changes): Promise<void> {
  if (chunks.length > 0)
    await tx.query({
      name: "durable_streams_chunks",
      text: `INSERT INTO runtime.durable_stream_chunks (stream_id, position, data, written_at)
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[])`,
      values: [
        chunks.map(({ stream }) => stream),
        chunks.map(({ position }) => position),
        chunks.map(({ data }) => data),
        chunks.map(({ writtenAt }) => writtenAt),
      ],
    });
  const claims = [...producers.values()];
  if (claims.length > 0)
    await tx.query({
      name: "durable_streams_claims",
      text: `INSERT INTO runtime.durable_stream_producers (stream_id, producer_id, epoch, seq)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[])
        ON CONFLICT (stream_id, producer_id)
        DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq, updated_at = clock_timestamp()`,
      values: [
        claims.map(({ stream }) => stream),
        claims.map(({ producer }) => producer),
        claims.map(({ epoch }) => epoch),
        claims.map(({ seq }) => seq),
      ],
    });
  const written = [...streams];
  if (written.length > 0)
    await tx.query({
      name: "durable_streams_written",
      text: `UPDATE runtime.durable_streams AS stream
        SET tail = new.tail, written_at = new.written_at, seq = new.seq, closed = new.closed,
          closed_by = new.closed_by, closed_epoch = new.closed_epoch, closed_seq = new.closed_seq,
          dies_at = CASE WHEN ttl_s IS NULL THEN dies_at ELSE clock_timestamp() + ttl_s * interval '1 second' END
        FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::boolean[], $5::text[], $6::bigint[], $7::bigint[],
          $8::bigint[]) AS new (id, tail, seq, closed, closed_by, closed_epoch, closed_seq, written_at)
        WHERE stream.id = new.id`,
      values: [
        written.map(({ id }) => id),
        written.map(({ tail }) => tail),
        written.map(({ seq }) => seq ?? null),
        written.map(({ closed }) => closed),
        written.map(({ closedBy }) => closedBy?.producer ?? null),
        written.map(({ closedBy }) => closedBy?.epoch ?? null),
        written.map(({ closedBy }) => closedBy?.seq ?? null),
        written.map(({ writtenAt }) => writtenAt),
      ],
    });
}

function streamKey({ caller, path }: StreamName): string {
  return keyOf(caller.org, path);
}

function keyOf(org: string, path: string): string {
  return JSON.stringify([org, path]);
}

function producerKey(stream: bigint, producer: string): string {
  return `${stream} ${producer}`;
}

/** A producer's last accepted epoch and sequence. */
export type Accepted = Pick<Claim, "epoch" | "seq">;

/** A locked stream, updated by each accepted append of the batch. */
export interface LockedStream extends Omit<Stream, "forkRequest" | "inherited"> {
  tail: bigint;
  writtenAt: bigint;
  /** The time of an append now, in microseconds; never before the newest one. */
  readonly now: bigint;
  closed: boolean;
  seq: string | undefined;
  closedBy: Claim | undefined;
}

/**
 * Decides about one append. Only "appended" changes anything; the caller stores it. A producer's retry is recognised
 * before `Stream-Seq`, which it repeats as well.
 */
export function decideAppend(
  stream: LockedStream,
  last: Accepted | undefined,
  append: Append,
): AppendOutcome {
  const { id, tail, writtenAt } = stream;
  const end = { id, tail, writtenAt };
  const { claim } = append;
  if (stream.closed) {
    if (claim && sameClaim(claim, stream.closedBy))
      return { kind: "duplicate", ...end, closed: true, seq: claim.seq };
    // Closing twice is no error, unless another producer closed it.
    if (append.data.length === 0 && !claim) return { kind: "appended", ...end, closed: true };
    return { kind: "closed", ...end };
  }
  if (append.contentType !== undefined && mediaType(append.contentType) !== mediaType(stream.contentType))
    return { kind: "other_type", contentType: stream.contentType };
  const refusal = claim && refusalOf(stream, last, claim);
  if (refusal) return refusal;
  if (append.seq !== undefined && stream.seq !== undefined && !above(append.seq, stream.seq))
    return { kind: "seq_not_above", last: stream.seq };
  const { length } = append.data;
  const newEnd = length > 0 ? { id, tail: tail + BigInt(length), writtenAt: stream.now } : end;
  return { kind: "appended", ...newEnd, closed: append.close };
}

/** Why a producer's claim is not the next one; undefined when it is. */
function refusalOf(
  stream: LockedStream,
  last: Accepted | undefined,
  claim: Claim,
): AppendOutcome | undefined {
  const { epoch, seq } = claim;
  const { id, tail, writtenAt, closed } = stream;
  if (last && epoch < last.epoch) return { kind: "stale_epoch", epoch: last.epoch };
  if (last && epoch > last.epoch) return seq === 0n ? undefined : { kind: "epoch_not_at_zero" };
  if (last && seq <= last.seq) return { kind: "duplicate", id, tail, writtenAt, closed, seq: last.seq };
  const expected = last ? last.seq + 1n : 0n;
  return seq === expected ? undefined : { kind: "gap", expected, received: seq };
}

function sameClaim(a: Claim, b: Claim | undefined): boolean {
  return b !== undefined && a.producer === b.producer && a.epoch === b.epoch && a.seq === b.seq;
}

/** Whether `a` comes after `b` in the order of their bytes. */
function above(a: string, b: string): boolean {
  return Buffer.compare(Buffer.from(a), Buffer.from(b)) > 0;
}
