import type { KhalaError, Wire } from "@khala/contracts";
import type { UpdateJson } from "@khala/contracts/sync/v1";
import type { Cursor, StoredDocument } from "../storage/storage.ts";

/** One changed document as it comes over the wire, with the document itself as its payload. */
export type Update = Omit<Wire<UpdateJson>, "payload"> & { readonly payload?: unknown };

/** Where the changes of topics come from: the socket of this tab, or the tab that holds it. */
export interface TopicSource {
  /** Follows until the signal aborts. Asks `sink.position()` whenever it (re)subscribes. */
  follow(topic: string, sink: TopicSink, signal: AbortSignal): void;
}

/** How a topic stands. `loading` has nothing to show yet; `forbidden` is final until the token changes. */
export type TopicPhase = "loading" | "replaying" | "live" | "stale" | "offline" | "forbidden";

/** What a topic does with what comes. Calls are made one at a time: a source awaits each before the next. */
export interface TopicSink {
  /** Where to go on from; undefined: nothing is known, so a snapshot is needed. */
  position(): Cursor | undefined;
  /** The whole topic, true at the cursor: replaces what is there in one step, without an empty moment. */
  replace(documents: readonly StoredDocument[], cursor: Cursor): Promise<void>;
  /** Changes in order, and how far they reach. Resolves when they are applied and stored, and only then moves the position. */
  apply(updates: readonly Update[], through: Cursor): Promise<void>;
  phase(phase: TopicPhase, error?: KhalaError): void;
}
