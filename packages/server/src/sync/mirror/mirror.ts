import type { DocumentName } from "../read/read_models.ts";

/** One version of a document, for a mirror. `org` and `docKey` together identify the document: two orgs may use one key. */
export interface MirrorUpdate {
  readonly docKey: string;
  readonly docVersion: bigint;
  readonly op: "upsert" | "delete";
  /** Canonical JSON; null on delete. */
  readonly payload: string | null;
  /** SHA-256 of the payload in hex; null on delete. */
  readonly payloadHash: string | null;
  readonly org: string;
  readonly audience: readonly string[] | null;
  readonly watermark: bigint;
}

/** Updates of one topic, in order. */
export interface MirrorBatch {
  readonly topic: string;
  /** A later epoch replaces earlier ones; within an epoch the higher `docVersion` is newer. */
  readonly epoch: string;
  readonly updates: readonly MirrorUpdate[];
}

/**
 * A second store, beside Postgres, that gets every update at least once. A batch may be repeated, and after a
 * restart older versions may follow, so it stores a version only when (epoch, docVersion) is higher.
 */
export interface Mirror {
  /** Identifies the mirror: a new name starts with a full copy. */
  readonly name: string;
  /** Resolves when all updates are stored, atomically. Stops when the signal aborts. */
  publish(batch: MirrorBatch, signal: AbortSignal): Promise<void>;
}

/** A document in a mirror. */
export interface MirroredDocument {
  readonly org: string;
  readonly docKey: string;
  readonly docVersion: bigint;
  readonly payloadHash: string | null;
}

/** A mirror that can list its documents. */
export interface MirrorReader {
  readonly name: string;
  /** Its documents after one, without deleted ones, ordered by the UTF-8 bytes of the org, then of the key. */
  held(
    topic: string,
    after: DocumentName,
    limit: number,
    signal: AbortSignal,
  ): Promise<readonly MirroredDocument[]>;
}

/** Stores nothing: measures the cost of dual publishing. */
export const noopMirror: Mirror = { name: "noop", publish: async () => {} };
