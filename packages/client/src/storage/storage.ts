/** A position in a topic. Opaque but for equality; `watermark` grows within an epoch. */
export interface Cursor {
  readonly epoch: string;
  readonly watermark: string;
}

/** A document as the client stores it. */
export interface StoredDocument {
  readonly key: string;
  readonly version: string;
  readonly hash: string;
  readonly updatedAt?: string;
  /** The JSON of the document; undefined while it must still be fetched. Absent with `deleted`. */
  readonly payload?: unknown;
  /** A tombstone: kept so that an older update does not bring the document back. */
  readonly deleted?: true;
}

export interface StoredTopic {
  readonly documents: readonly StoredDocument[];
  readonly cursor: Cursor;
}

/**
 * A change of documents and cursor, committed together. It is the whole topic (`replace`), which removes all other documents, or what
 * changed since the stored cursor (`after`).
 */
export type TopicChange = {
  readonly put: readonly StoredDocument[];
  readonly remove: readonly string[];
  readonly cursor: Cursor;
} & (
  | { readonly replace: true; readonly after?: never }
  | { readonly after: Cursor; readonly replace?: never }
);

/**
 * Stores documents and cursors beyond a reload. `scope` separates people: server, org and
 * subject. Failures are thrown; the client logs them, continues in memory, and never uses a cursor whose documents were not
 * stored with it. Unreadable data is treated as absent, not as an error.
 */
export interface Storage {
  load(scope: string, topic: string): Promise<StoredTopic | undefined>;
  /**
   * Atomic, also when the program crashes. Fails with `sequence_conflict` and changes nothing unless the topic is stored at `after`:
   * it was cleared, or another program wrote. A cursor is thus never stored without the documents that it describes.
   */
  commit(scope: string, topic: string, change: TopicChange): Promise<void>;
  /** One topic, one scope, or everything; also while clients use it. */
  clear(scope?: string, topic?: string): Promise<void>;
  close(): Promise<void>;
}
