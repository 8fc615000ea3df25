import type { KhalaError } from "@khala/contracts";
import type { TopicPhase, TopicSource } from "./source.ts";

/** A document for rendering. The same object until it changes. */
export interface Snapshot<Doc = unknown> {
  readonly data?: Doc;
  readonly version?: string;
  readonly phase: TopicPhase;
  readonly error?: KhalaError;
  /** A newer version exists and is being fetched. */
  readonly stale: boolean;
}

/** One document of a list. The same object until the document changes. */
export interface Item<Doc = unknown> {
  readonly key: string;
  readonly version: string;
  readonly data: Doc;
  readonly updatedAt?: string;
}

/** The documents of a topic for rendering, sorted by key unless asked otherwise. The same object until something changes. */
export interface ListSnapshot<Doc = unknown> {
  readonly items: readonly Item<Doc>[];
  readonly phase: TopicPhase;
  readonly error?: KhalaError;
}

/** The fields of a document; any name for documents that the app does not declare. */
export type FieldOf<Doc> = unknown extends Doc ? string : keyof Doc & string;

/** A part of a topic: fields that its model partitions it `by`, or `doc_key` for one document. */
export type Where<Doc = unknown> = {
  readonly [Field in FieldOf<Doc> | "doc_key"]?: string;
};

/** The filter and the order of a list. */
export interface ListOptions<Doc = unknown> {
  /** Follows only this part of the topic. Its model declares the fields in `by`. */
  readonly where?: Where<Doc> | undefined;
  /** The field to order by; with "-" the highest come first. Default: by key. */
  readonly order?: FieldOf<Doc> | `-${FieldOf<Doc>}` | undefined;
  /** Only documents whose fields have these values. */
  readonly filter?: { readonly [Field in FieldOf<Doc>]?: string | number | boolean | undefined } | undefined;
  /** The maximum number of items, from the first. */
  readonly limit?: number | undefined;
}

/** Document types by topic name: `{ "runtime.run_summaries": RunSummary }`. */
export type Topics = object;

/** The document of a topic or of a part of it; unknown for topics that the app does not declare. */
export type DocumentOf<T extends Topics, Topic extends string> = (T &
  Readonly<Record<string, unknown>>)[Topic extends `${infer Whole}?${string}` ? Whole : Topic];

/** Topic names, for completion; any other string is accepted too. */
export type TopicName<T extends Topics> = (keyof T & string) | (string & {});

/** Synced documents, read only: changes go through the server's routes. */
export interface Sync<T extends Topics = object> {
  get<Topic extends TopicName<T>>(topic: Topic, key: string): Snapshot<DocumentOf<T, Topic>>;
  /** The documents of a topic, or of the part that is followed. Changes keep the order. */
  list<Topic extends TopicName<T>>(
    topic: Topic,
    options?: ListOptions<DocumentOf<T, Topic>>,
  ): ListSnapshot<DocumentOf<T, Topic>>;
  /** Follows the topic, or the part that `partOf` names, until the returned function is called. Calls the listener after changes of the topic, or of one document. */
  subscribe(topic: TopicName<T>, listener: () => void): () => void;
  subscribe(topic: TopicName<T>, key: string, listener: () => void): () => void;
  /**
   * Reads one document from the server, without following its topic. The key implies the topic. Undefined
   * when it does not exist or the token may not see it.
   */
  read<Doc = unknown>(
    key: string,
    options?: { readonly signal?: AbortSignal },
  ): Promise<Item<Doc> | undefined>;
  /** Resolves with the first complete state, which may come from the storage; rejects when the topic is forbidden, or the signal aborts. */
  ready(topic: TopicName<T>, options?: { readonly signal?: AbortSignal }): Promise<void>;
}

/**
 * The plane as other parts of the client use it. It is a source itself: a follower (another tab) gets its state by `replace`, then
 * each change as it is applied.
 */
export interface SyncPlane<T extends Topics = object> extends Sync<T>, TopicSource {
  /** Sets the source of changes; topics resume from their positions. Undefined: no source for now. */
  setSource(source: TopicSource | undefined): void;
  /** Whether this tab writes to the storage. When switched on, it first writes everything. */
  setStoring(storing: boolean): void;
  /** Sets whose documents these are. A changed scope empties every topic and loads the stored documents of the new one. */
  setScope(scope: string): void;
  /** The scope cannot be determined at the moment, and why. */
  unidentified(error: KhalaError): void;
  close(): void;
}
