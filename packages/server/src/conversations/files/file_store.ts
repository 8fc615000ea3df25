/** A file of an org. */
export interface FileKey {
  readonly org: string;
  readonly fileId: string;
}

/** Bytes from `start` up to, and without, `end`. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * Where the bytes of files are. It knows nothing of conversations: files.ts keeps a row for each file, from before its first
 * byte until after its last one is deleted. Neither side holds a whole file in memory.
 */
export interface FileStore {
  /** Whether the bytes are outside of the database, and have to be deleted by themselves. */
  readonly inBucket: boolean;
  /** Stores the bytes. When it throws, or `bytes` does, parts may be left: the caller deletes the file. */
  put(key: FileKey, bytes: AsyncIterable<Uint8Array>): Promise<void>;
  /** The bytes of a range that the file has. Throws not_found when it has fewer. */
  get(key: FileKey, range: ByteRange): AsyncIterable<Uint8Array>;
  /** Deletes files, as far as they exist. */
  delete(keys: readonly FileKey[]): Promise<void>;
}

/** The same bytes in pieces of exactly `size`, except the last. */
export async function* inPieces(
  bytes: AsyncIterable<Uint8Array>,
  size: number,
): AsyncGenerator<Buffer<ArrayBuffer>> {
  let waiting: Uint8Array[] = [];
  let length = 0;
  for await (const piece of bytes) {
    let rest = piece;
    while (length + rest.length >= size) {
      const cut = size - length;
      yield Buffer.concat([...waiting, rest.subarray(0, cut)]);
      waiting = [];
      length = 0;
      rest = rest.subarray(cut);
    }
    if (rest.length > 0) waiting.push(rest);
    length += rest.length;
  }
  if (length > 0) yield Buffer.concat(waiting);
}
