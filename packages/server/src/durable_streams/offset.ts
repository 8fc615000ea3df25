/** A position in a stream, as clients store it: opaque, and sortable as text. */
export interface Offset {
  /** The stream's id: a recreated stream at the same path has another one. */
  readonly stream: bigint;
  /** Bytes from the beginning. */
  readonly position: bigint;
  /** The time of the append that ends there, in microseconds: after a restore it is another one. 0 at the beginning. */
  readonly writtenAt: bigint;
}

/** The offset before everything in every stream. */
export const BEGINNING: Offset = { stream: 0n, position: 0n, writtenAt: 0n };

const DIGITS = 16;
/** The beginning may be given without a time. */
const FORM = /^(\d{16})_(\d{16})(?:_(\d{16}))?$/;

/** Formats an offset. */
export function formatOffset({ stream, position, writtenAt }: Offset): string {
  return [stream, position, writtenAt].map(digits).join("_");
}

/** Parses an offset; undefined when it is not valid. */
export function parseOffset(text: string): Offset | undefined {
  const [, stream, position, writtenAt = 0] = FORM.exec(text) ?? [];
  if (stream === undefined || position === undefined) return undefined;
  return { stream: BigInt(stream), position: BigInt(position), writtenAt: BigInt(writtenAt) };
}

function digits(value: bigint): string {
  return value.toString().padStart(DIGITS, "0");
}
