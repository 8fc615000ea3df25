/** Whose stream, and where. */
export interface StreamName {
  readonly org: string;
  readonly path: string;
}

/** What a stream is made with. Asking again with the same is no error. */
export interface StreamConfig {
  readonly contentType: string;
  /** Seconds after the last read or write at which it goes. */
  readonly ttlS: bigint | undefined;
  /** The moment at which it goes, as it was given. */
  readonly expiresAt: string | undefined;
  readonly closed: boolean;
}

/** A stream as it is now. */
export interface Stream extends StreamConfig {
  readonly id: bigint;
  /** How many bytes it has: the position of its end. */
  readonly tail: bigint;
}

/** Who says to write, for the n-th time: what makes a repeated append count once. */
export interface Claim {
  readonly producer: string;
  readonly epoch: bigint;
  readonly seq: bigint;
}

/** Bytes to add, or nothing when the stream is only to be closed. */
export interface Append {
  readonly name: StreamName;
  /** Already in the form that is stored: see json_mode.ts. */
  readonly data: Buffer;
  /** Undefined when there are no bytes that it would describe. */
  readonly contentType: string | undefined;
  readonly close: boolean;
  /** `Stream-Seq`: must be above the last one. */
  readonly seq: string | undefined;
  readonly claim: Claim | undefined;
}

/** What became of an append, in the words of the protocol. */
export type AppendOutcome =
  | { readonly kind: "missing" }
  | { readonly kind: "appended"; readonly id: bigint; readonly tail: bigint; readonly closed: boolean }
  | {
      readonly kind: "duplicate";
      readonly id: bigint;
      readonly tail: bigint;
      readonly closed: boolean;
      readonly seq: bigint;
    }
  | { readonly kind: "closed"; readonly id: bigint; readonly tail: bigint }
  | { readonly kind: "other_type"; readonly contentType: string }
  | { readonly kind: "stale_epoch"; readonly epoch: bigint }
  | { readonly kind: "epoch_not_at_zero" }
  | { readonly kind: "gap"; readonly expected: bigint; readonly received: bigint }
  | { readonly kind: "seq_not_above"; readonly last: string };

/** A type without its parameters, as types are compared. */
export function mediaType(contentType: string): string {
  return contentType.split(";")[0]!.trim().toLowerCase();
}

/** Whether the stream holds JSON messages, and not just bytes. */
export function isJson(contentType: string): boolean {
  return mediaType(contentType) === "application/json";
}
