import type { Caller } from "../access/viewer.ts";
import type { Offset } from "./offset.ts";

/** A stream, as a caller names it: a path within the caller's org. */
export interface StreamName {
  readonly caller: Caller;
  readonly path: string;
}

/** The configuration of a stream. Creating it again with the same one is no error. */
export interface StreamConfig {
  readonly contentType: string;
  /** Seconds from the last read or write to its expiry. */
  readonly ttlS: bigint | undefined;
  /** The fixed time of its expiry, as sent. */
  readonly expiresAt: string | undefined;
  readonly closed: boolean;
}

/** The current state of a stream. */
export interface Stream extends StreamConfig {
  readonly id: bigint;
  /** The subject that created it. */
  readonly owner: string;
  /** Its length in bytes: the position of its end. */
  readonly tail: bigint;
  /** The time of the newest append, in microseconds; 0 without one. */
  readonly writtenAt: bigint;
  /** Deleted, and kept in name only because it has forks. */
  readonly gone: boolean;
  /** As which fork it was asked for; undefined for other streams. */
  readonly forkRequest: string | undefined;
  /** For a fork: the streams that it inherits from, up to where. Their offsets are valid here. */
  readonly inherited: readonly Inherited[];
}

/** A stream that a fork inherits from, and up to where. */
export type Inherited = Omit<Offset, "writtenAt">;

/** The point where a new stream leaves another one. */
export interface Fork {
  readonly source: Stream;
  /** The position up to which the source's bytes are inherited. */
  readonly at: bigint;
  /** The request in a form that recognises a repetition. */
  readonly request: string;
}

/** An idempotent producer's id, epoch and sequence: a retried append counts once. */
export interface Claim {
  readonly producer: string;
  readonly epoch: bigint;
  readonly seq: bigint;
}

/** An append, or only a close when there are no bytes. */
export interface Append {
  readonly name: StreamName;
  /** In the stored form: see json_mode.ts. */
  readonly data: Buffer;
  /** Undefined without bytes. */
  readonly contentType: string | undefined;
  readonly close: boolean;
  /** `Stream-Seq`: must be above the last one. */
  readonly seq: string | undefined;
  readonly claim: Claim | undefined;
}

/** The end of a stream. */
export type Tail = Pick<Stream, "id" | "tail" | "writtenAt">;

/** The result of an append. */
export type AppendOutcome =
  | { readonly kind: "missing" }
  | { readonly kind: "gone" }
  | ({ readonly kind: "appended"; readonly closed: boolean } & Tail)
  | ({ readonly kind: "duplicate"; readonly closed: boolean; readonly seq: bigint } & Tail)
  | ({ readonly kind: "closed" } & Tail)
  | { readonly kind: "other_type"; readonly contentType: string }
  | { readonly kind: "stale_epoch"; readonly epoch: bigint }
  | { readonly kind: "epoch_not_at_zero" }
  | { readonly kind: "gap"; readonly expected: bigint; readonly received: bigint }
  | { readonly kind: "seq_not_above"; readonly last: string };

/** A content type without parameters, for comparisons. */
export function mediaType(contentType: string): string {
  return contentType.split(";")[0]!.trim().toLowerCase();
}

/** Whether the stream is in JSON mode. */
export function isJson(contentType: string): boolean {
  return mediaType(contentType) === "application/json";
}
