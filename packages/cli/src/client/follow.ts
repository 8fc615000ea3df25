import { type Cursor, openFeed, type StoredDocument, type TopicPhase } from "@khala/client";
import type { KhalaError } from "@khala/contracts";
import { callServer, ServerRefusal } from "./call_server.ts";
import { type TokenSource, tokenExpired } from "./tokens.ts";

/** Where following begins: with a list of the documents, with new changes only, or with the oldest retained change. */
export type From = "list" | "now" | "oldest";

export interface FollowOptions {
  readonly url: string;
  readonly topic: string;
  readonly from: From;
  readonly tokens: TokenSource;
  readonly signal: AbortSignal;
  readonly onUpdate: (update: Update) => void;
  /** Called with the state of the connection, as a readable text. */
  readonly onState: (state: string) => void;
}

/**
 * Follows a topic until the signal aborts: replay and live from the last cursor, through disconnects; a cursor that is
 * stale is replaced by a list. Throws on errors that a retry does not fix.
 */
export async function follow(options: FollowOptions): Promise<void> {
  try {
    await followOn(options);
  } catch (error) {
    // An abort is no failure.
    if (!options.signal.aborted) throw error;
  }
}

async function followOn({
  url,
  topic,
  from,
  tokens,
  signal,
  onUpdate,
  onState,
}: FollowOptions): Promise<void> {
  // Called before the socket opens, so that an unreachable server or a refusal is reported as such.
  let first: string | undefined = await tokens.get();
  const { cursor: now } = await callServer<{ cursor: Cursor }>(url, `/sync/v1/list/${topic}?limit=1`, {
    token: first,
    signal,
  });
  let cursor = { list: undefined, now, oldest: { epoch: "", watermark: "0" } }[from];
  let before: TopicPhase | undefined;
  const versions = new NewestVersions(onUpdate);
  const over = Promise.withResolvers<void>();
  const token = async () => {
    const next = first ?? (await tokens.get());
    first = undefined;
    return next;
  };
  const feed = openFeed({ url, token: tokens.renewable ? token : first });
  const stop = () => over.resolve();
  signal.addEventListener("abort", stop);
  try {
    feed.follow(
      topic,
      {
        position: () => cursor,
        async replace(documents, at) {
          versions.replace(topic, documents);
          cursor = at;
        },
        async apply(updates, through) {
          // The server sends every field; the generated types make them optional.
          for (const update of updates) versions.accept(update as Update);
          cursor = through;
        },
        phase(phase, error) {
          // Each failed attempt to reconnect repeats the phase.
          if (phase === before) return;
          before = phase;
          if (phase === "live") onState(`following ${topic}`);
          if (phase === "stale") onState("the cursor is stale: listing again");
          if (phase === "offline") onState(`disconnected (${error?.message ?? "no answer"}): reconnecting`);
          if (phase === "forbidden") over.reject(refusal(error));
        },
      },
      signal,
    );
    await over.promise;
  } finally {
    signal.removeEventListener("abort", stop);
    await feed.close();
  }
}

function refusal(error: KhalaError | undefined): Error {
  if (error?.code === "token_expired") return tokenExpired();
  return new ServerRefusal(error?.code ?? "refused", error?.message ?? "The server refused.");
}

/** A change of a document, in the socket's JSON. */
export interface Update {
  readonly topic: string;
  readonly doc_key: string;
  readonly doc_version: string;
  readonly op: "upsert" | "delete";
  /** The document itself. */
  readonly payload?: unknown;
  readonly payload_hash?: string;
  readonly watermark?: string;
  /** The payload is over the size limit: fetch the document. */
  readonly fetch_required?: boolean;
}

const MOST = 100_000;

/** The newest version of each document, so that no change is emitted twice or out of order. */
export class NewestVersions {
  readonly #versions = new Map<string, { version: bigint; deleted: boolean }>();
  readonly #onUpdate: (update: Update) => void;

  constructor(onUpdate: (update: Update) => void) {
    this.#onUpdate = onUpdate;
  }

  /** Emits an update that is newer than the last one of its document. */
  accept(update: Update): void {
    const version = BigInt(update.doc_version);
    const before = this.#versions.get(update.doc_key);
    if (before && before.version >= version) return;
    this.#versions.delete(update.doc_key);
    this.#versions.set(update.doc_key, { version, deleted: update.op === "delete" });
    if (this.#versions.size > MOST) this.#versions.delete(this.#versions.keys().next().value!);
    this.#onUpdate(update);
  }

  /** Takes a complete list: emits newer versions, and deletes of missing documents. */
  replace(topic: string, documents: readonly StoredDocument[]): void {
    const listed = new Set(documents.map(({ key }) => key));
    for (const [doc_key, { version, deleted }] of [...this.#versions]) {
      if (deleted || listed.has(doc_key)) continue;
      this.#versions.set(doc_key, { version, deleted: true });
      this.#onUpdate({ topic, doc_key, doc_version: String(version), op: "delete" });
    }
    for (const { key, version, payload, hash } of documents)
      this.accept({ topic, doc_key: key, doc_version: version, op: "upsert", payload, payload_hash: hash });
  }
}
