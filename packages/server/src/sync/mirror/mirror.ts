/** One version of a document, as a mirror is told of it. */
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
  /** Later epochs sort after earlier ones, and replace them: within one, the higher `docVersion` is the newer. */
  readonly epoch: string;
  readonly updates: readonly MirrorUpdate[];
}

/**
 * Another place that gets every update, beside Postgres. It is told at least once: a batch may come again, and after a
 * restart older versions may, so it keeps a version only when (epoch, docVersion) is above the one it has.
 */
export interface Mirror {
  /** Tells one sink from another: a new name starts with a list of everything. */
  readonly name: string;
  /** Resolves when all are stored, all or none. Gives up when the signal aborts. */
  publish(batch: MirrorBatch, signal: AbortSignal): Promise<void>;
}

/** A document as a mirror has it. */
export interface MirroredDocument {
  readonly docKey: string;
  readonly docVersion: bigint;
  readonly payloadHash: string | null;
}

/** A mirror that can say what it holds. */
export interface MirrorReader {
  readonly name: string;
  /** Its documents after a key, deleted ones left out, in the order of the keys' UTF-8 bytes; none after the last. */
  held(
    topic: string,
    after: string,
    limit: number,
    signal: AbortSignal,
  ): Promise<readonly MirroredDocument[]>;
}

/** Takes everything and keeps nothing: dual publish without a second place, to see what it costs. */
export const noopMirror: Mirror = { name: "noop", publish: async () => {} };
