/** A place in a stream, as clients keep it: opaque to them, and in order when compared as text. */
export interface Offset {
  /** The stream's id: a stream made again at the same path has another. */
  readonly stream: bigint;
  /** Bytes from the beginning. */
  readonly position: bigint;
}

const DIGITS = 16;
const FORM = /^(\d{16})_(\d{16})$/;

/** The text of an offset. */
export function formatOffset({ stream, position }: Offset): string {
  return `${digits(stream)}_${digits(position)}`;
}

/** Reads the text of an offset; undefined when it is none of ours. */
export function parseOffset(text: string): Offset | undefined {
  const [, stream, position] = FORM.exec(text) ?? [];
  if (stream === undefined || position === undefined) return undefined;
  return { stream: BigInt(stream), position: BigInt(position) };
}

function digits(value: bigint): string {
  return value.toString().padStart(DIGITS, "0");
}
