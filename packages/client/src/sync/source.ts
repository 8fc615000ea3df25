import type { KhalaError, Wire } from "@khala/contracts";
import type { UpdateJson } from "@khala/contracts/sync/v1";
import type { Cursor, StoredDocument } from "../storage/storage.ts";

/** One changed document from the wire, with the parsed document as its payload. */
export type Update = Omit<Wire<UpdateJson>, "payload"> & { readonly payload?: unknown };

/** The source of topic changes: this tab's socket, or the leader tab. */
export interface TopicSource {
  /** Follows until the signal aborts. Asks `sink.position()` whenever it (re)subscribes. */
  follow(topic: string, sink: TopicSink, signal: AbortSignal): void;
}

/** The state of a topic. `loading` has nothing to show yet; `forbidden` is final until the token changes. */
export type TopicPhase = "loading" | "replaying" | "live" | "stale" | "offline" | "forbidden";

/** Receives the changes of a topic. A source awaits each call before the next. */
export interface TopicSink {
  /** The position to resume from; undefined when a snapshot is needed. */
  position(): Cursor | undefined;
  /** Replaces all documents in one step with the state at the cursor. */
  replace(documents: readonly StoredDocument[], cursor: Cursor): Promise<void>;
  /** Applies changes in order, up to `through`. Resolves when they are stored; the position moves only then. */
  apply(updates: readonly Update[], through: Cursor): Promise<void>;
  phase(phase: TopicPhase, error?: KhalaError): void;
}
