import type { KhalaClient } from "@khala/client";
import type { DocumentPage, DocumentRow } from "./document_pages.ts";

type Ops = KhalaClient["ops"];
type Answer<Name extends "topics" | "documents" | "history" | "sockets" | "parity"> = Awaited<
  ReturnType<Ops[Name]>
>;
type Item<List> = NonNullable<List> extends readonly (infer One)[] ? One : never;

/** A topic, with nothing missing and figures as numbers. Positions stay texts: they have 64 bits. */
export interface Topic {
  readonly topic: string;
  readonly head: string;
  readonly floor: string;
  readonly lag: number;
  readonly documents: number;
  readonly journalRows: number;
  readonly journalBytes: number;
  readonly retentionHours: number;
  readonly subscribers: number;
  readonly projection: {
    readonly state: string;
    readonly message: string;
    /** Events that are not documents yet; undefined when another server knows. */
    readonly behind: number | undefined;
  };
}

/** A version of a document in the journal. */
export interface HistoryEntry {
  readonly watermark: string;
  readonly version: string;
  readonly op: string;
  /** Undefined when it was deleted, or when the journal does not have it. */
  readonly payload: unknown;
  readonly hash: string;
  readonly committedAt: string;
}

/** A client that follows a topic, and where it stands. */
export interface Follower {
  readonly id: string;
  readonly socket: string;
  readonly subject: string;
  readonly topic: string;
  readonly watermark: string;
  readonly head: string | undefined;
  readonly behind: number | undefined;
  readonly queuedBytes: number;
  readonly connectedAt: string;
  readonly remote: string;
  readonly state: string;
}

export interface TopicParity {
  readonly topic: string;
  readonly state: string;
  readonly lag: number;
  readonly checked: number | undefined;
  readonly differences: number | undefined;
  readonly at: string | undefined;
}

/** Reads a topic of an answer. */
export function readTopic(wire: Item<Answer<"topics">["topics"]>): Topic {
  const { projection = {} } = wire;
  return {
    topic: wire.topic ?? "",
    head: wire.head ?? "0",
    floor: wire.floor ?? "0",
    lag: Number(wire.lag ?? 0),
    documents: Math.max(0, Number(wire.documents ?? 0)),
    journalRows: Number(wire.journal_rows ?? 0),
    journalBytes: Number(wire.journal_bytes ?? 0),
    retentionHours: Number(wire.retention_hours ?? 0),
    subscribers: Number(wire.subscribers ?? 0),
    projection: {
      state: projection.state ?? "ok",
      message: projection.message ?? "",
      behind: projection.position === undefined ? undefined : between(projection.position, projection.head),
    },
  };
}

/** Reads a page of documents. */
export function readPage(
  { documents = [], next }: Answer<"documents">,
  after: string | undefined,
): DocumentPage {
  const rows = documents.map(
    (wire): DocumentRow => ({
      doc_key: wire.doc_key ?? "",
      doc_version: wire.doc_version ?? "0",
      updated_at: wire.updated_at ?? "",
      bytes: Number(wire.bytes ?? 0),
      audience: wire.audience ?? [],
    }),
  );
  return { after, rows, next };
}

/** Reads what the journal has of a document, newest first. */
export function readHistory({ entries = [] }: Answer<"history">): readonly HistoryEntry[] {
  return entries.map((wire) => ({
    watermark: wire.watermark ?? "0",
    version: wire.doc_version ?? "0",
    op: wire.op ?? "upsert",
    payload: wire.payload,
    hash: wire.payload_hash ?? "",
    committedAt: wire.committed_at ?? "",
  }));
}

/** Who follows what, and how far behind the head each is. */
export function readFollowers(
  { sockets = [] }: Answer<"sockets">,
  topics: readonly Topic[],
): readonly Follower[] {
  const heads = new Map(topics.map(({ topic, head }) => [topic, head]));
  return sockets.flatMap((socket) =>
    (socket.channels ?? []).flatMap(({ cursors = {} }) =>
      Object.entries(cursors).map(([topic, cursor]): Follower => {
        const head = heads.get(topic);
        const watermark = cursor.watermark ?? "0";
        return {
          id: `${socket.id}/${topic}`,
          socket: socket.id ?? "",
          subject: socket.subject ?? "",
          topic,
          watermark,
          head,
          behind: head === undefined ? undefined : between(watermark, head),
          queuedBytes: Number(socket.queued_bytes ?? 0),
          connectedAt: socket.connected_at ?? "",
          remote: socket.remote ?? "",
          state: socket.state ?? "ok",
        };
      }),
    ),
  );
}

/** Reads how the second sink compares. */
export function readParity({ sink = "none", topics = [] }: Answer<"parity">): {
  readonly sink: string;
  readonly topics: readonly TopicParity[];
} {
  return {
    sink,
    topics: topics.map((wire) => ({
      topic: wire.topic ?? "",
      state: wire.state ?? "",
      lag: Number(wire.lag ?? 0),
      checked: wire.at === undefined ? undefined : Number(wire.checked ?? 0),
      differences: wire.at === undefined ? undefined : Number(wire.differences ?? 0),
      at: wire.at,
    })),
  };
}

/** How many steps from one position to another; never less than none. */
export function between(from: string, to = "0"): number {
  const steps = BigInt(to) - BigInt(from);
  return steps > 0n ? Number(steps) : 0;
}
