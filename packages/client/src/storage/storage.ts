/** A position in a topic. Opaque but for equality; `watermark` grows within an epoch. */
export interface Cursor {
  readonly epoch: string;
  readonly watermark: string;
}

/** A document as the client keeps it. */
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

/** What one step changes: documents and cursor together, or neither. */
export interface TopicChange {
  /** Everything else of the topic goes. */
  readonly replace?: boolean;
  readonly put: readonly StoredDocument[];
  readonly remove: readonly string[];
  readonly cursor: Cursor;
}

/**
 * Where documents and cursors outlive the page. `scope` keeps apart what belongs to different people: server, org and
 * subject. A failure is thrown; the client goes on in memory, says so, and never trusts a cursor whose documents were not
 * stored with it. What cannot be read back is treated as absent, not as an error.
 */
export interface Storage {
  load(scope: string, topic: string): Promise<StoredTopic | undefined>;
  /** All of it, or nothing, also through a crash. */
  commit(scope: string, topic: string, change: TopicChange): Promise<void>;
  /** One topic, one scope, or everything. */
  clear(scope?: string, topic?: string): Promise<void>;
  close(): Promise<void>;
}
