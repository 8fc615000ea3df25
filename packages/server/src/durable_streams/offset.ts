/** A position in a stream, as clients store it: opaque, and sortable as text. */
export interface Offset {
  /** The stream's id: a recreated stream at the same path has another one. */
  readonly stream: bigint;
  /** Bytes from the beginning. */
  readonly position: bigint;
}

const DIGITS = 16;
const FORM = /^(\d{16})_(\d{16})$/;

/** Formats an offset. */
export function formatOffset({ stream, position }: Offset): string {
  return `${digits(stream)}_${digits(position)}`;
}

/** Parses an offset; undefined when it is not valid. */
export function parseOffset(text: string): Offset | undefined {
  const [, stream, position] = FORM.exec(text) ?? [];
  if (stream === undefined || position === undefined) return undefined;
  return { stream: BigInt(stream), position: BigInt(position) };
}

function digits(value: bigint): string {
  return value.toString().padStart(DIGITS, "0");
}
