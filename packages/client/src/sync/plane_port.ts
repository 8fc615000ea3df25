import type { KhalaError } from "@khala/contracts";
import type { TopicPhase, TopicSource } from "./source.ts";

/** A document as a screen reads it. The same object until it changed. */
export interface Snapshot<Doc = unknown> {
  readonly data?: Doc;
  readonly version?: string;
  readonly phase: TopicPhase;
  readonly error?: KhalaError;
  /** A newer version is known, and being fetched. */
  readonly stale: boolean;
}

/** One document of a list. The same object until the document changed. */
export interface Item<Doc = unknown> {
  readonly key: string;
  readonly version: string;
  readonly data: Doc;
  readonly updatedAt?: string;
}

/** A topic as a screen reads it, sorted by key. The same object until something changed. */
export interface ListSnapshot<Doc = unknown> {
  readonly items: readonly Item<Doc>[];
  readonly phase: TopicPhase;
  readonly error?: KhalaError;
}

/** What a program names topics by, and what their documents are: `{ "runtime.run_summaries": RunSummary }`. */
export type Topics = object;

/** The document of a topic; unknown for topics that the app does not declare. */
export type DocumentOf<T extends Topics, Topic extends string> = (T &
  Readonly<Record<string, unknown>>)[Topic];

/** The names of topics, for completion; any other text is accepted too. */
export type TopicName<T extends Topics> = (keyof T & string) | (string & {});

/** Documents that stay true. Writing is not part of it: changes go through the server's own routes. */
export interface Sync<T extends Topics = object> {
  get<Topic extends TopicName<T>>(topic: Topic, key: string): Snapshot<DocumentOf<T, Topic>>;
  list<Topic extends TopicName<T>>(topic: Topic): ListSnapshot<DocumentOf<T, Topic>>;
  /** Follows the topic until the returned function is called, and calls back after changes: of all of it, or of one document. */
  subscribe(topic: TopicName<T>, listener: () => void): () => void;
  subscribe(topic: TopicName<T>, key: string, listener: () => void): () => void;
  /**
   * One document as the server has it now, without following its topic: for what is looked at once. Its key names the topic. Undefined
   * when there is none that this token may see.
   */
  read<Doc = unknown>(
    key: string,
    options?: { readonly signal?: AbortSignal },
  ): Promise<Item<Doc> | undefined>;
  /** Resolves with the first complete state, a stored one too; rejects when the topic is forbidden, or the signal aborts. */
  ready(topic: TopicName<T>, options?: { readonly signal?: AbortSignal }): Promise<void>;
}

/**
 * The plane as the client's other parts use it. It is a source itself: whoever follows it (another tab) gets its state by `replace`, then
 * each change as it is applied.
 */
export interface SyncPlane<T extends Topics = object> extends Sync<T>, TopicSource {
  /** Takes changes from here on from this source; topics go on from their positions. Undefined: from nowhere, until there is one. */
  setSource(source: TopicSource | undefined): void;
  /** Whether this tab writes to the storage. When it begins to, it first writes all it has. */
  setStoring(storing: boolean): void;
  /** Whose documents these are. Another scope than before empties every topic, and loads what is stored for it. */
  setScope(scope: string): void;
  /** Whose documents are wanted cannot be found out at the moment, and why. */
  unidentified(error: KhalaError): void;
  close(): void;
}
