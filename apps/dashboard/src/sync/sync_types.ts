import type { KhalaClient } from "@khala/client";
import type { Socket } from "../data/sockets.ts";
import { complete, completeAll } from "../data/wire.ts";
import type { DocumentPage } from "./document_pages.ts";

type Ops = KhalaClient["ops"];
type Answer<Name extends "topics" | "documents" | "history" | "parity"> = Awaited<ReturnType<Ops[Name]>>;
type WireTopic = NonNullable<Answer<"topics">["topics"]>[number];

// Positions stay texts: they have 64 bits.
const TOPIC = {
  topic: "",
  head: "0",
  floor: "0",
  lag: 0,
  /** An estimate of the database; 0 or less before there is one. */
  documents: 0,
  journal_rows: 0,
  journal_bytes: 0,
  retention_hours: 0,
  subscribers: 0,
  projection: { state: "ok", failed: 0, position: undefined as string | undefined, head: "0" },
};
const DOCUMENT = { doc_key: "", doc_version: "0", updated_at: "", bytes: 0, audience: [""], preview: {} };
const HISTORY_ENTRY = {
  watermark: "0",
  doc_version: "0",
  op: "upsert",
  /** Undefined when it was deleted, or when the journal does not have it. */
  payload: undefined as unknown,
  payload_hash: "",
  committed_at: "",
};
const TOPIC_PARITY = {
  topic: "",
  state: "",
  lag: 0,
  checked: 0,
  differences: 0,
  /** Undefined until it was compared. */
  at: undefined as string | undefined,
};

export type Topic = ReturnType<typeof readTopic>;
export type HistoryEntry = Readonly<typeof HISTORY_ENTRY>;
export type TopicParity = Readonly<typeof TOPIC_PARITY>;

/** A client's subscription to a topic, and its position. */
export interface Subscription {
  readonly id: string;
  readonly socket: Socket;
  readonly topic: string;
  readonly watermark: string;
  readonly head: string | undefined;
  readonly behind: number | undefined;
}

/** Reads a topic. */
export function readTopic(wire: WireTopic) {
  const topic = complete(TOPIC, wire);
  const { position, head } = topic.projection;
  /** Events that are not in documents yet; undefined when another server knows. */
  const behind = position === undefined ? undefined : distance(position, head);
  return { ...topic, behind };
}

/** Reads a page of documents. */
export function readPage({ documents, next }: Answer<"documents">, after: string | undefined): DocumentPage {
  return { after, rows: completeAll(DOCUMENT, documents), next };
}

/** Reads the versions of a document in the journal, newest first. */
export function readHistory({ entries }: Answer<"history">): readonly HistoryEntry[] {
  return completeAll(HISTORY_ENTRY, entries);
}

/** Lists all subscriptions, and how far behind the head each is. */
export function subscriptionsOf(
  sockets: readonly Socket[],
  topics: readonly Pick<Topic, "topic" | "head">[],
): readonly Subscription[] {
  const heads = new Map(topics.map(({ topic, head }) => [topic, head]));
  return sockets.flatMap((socket) =>
    socket.channels.flatMap(({ cursors }) =>
      cursors.map(({ topic, watermark }) => {
        const head = heads.get(topic);
        const behind = head === undefined ? undefined : distance(watermark, head);
        return { id: `${socket.id}/${topic}`, socket, topic, watermark, head, behind };
      }),
    ),
  );
}

/** Reads how the mirror compares. */
export function readParity({ sink = "none", topics }: Answer<"parity">) {
  return { sink, topics: completeAll(TOPIC_PARITY, topics) };
}

/** The steps from one position to another; never negative. */
export function distance(from: string, to = "0"): number {
  const steps = BigInt(to) - BigInt(from);
  return steps > 0n ? Number(steps) : 0;
}
