import type { Service } from "../../kit/service.ts";

/** A position in a stream: the entry's contiguous sequence number, and its time, which a driver may need to find it. */
export interface Position {
  readonly seq: bigint;
  /** Milliseconds; never less than the time of the entry before it. */
  readonly time: number;
}

/** An entry: its position and its text, which has no line breaks. */
export interface Entry extends Position {
  readonly data: string;
}

/** The range of a stream that is kept. Any position in [floor, head] can be read from. */
export interface Bounds {
  /** Identifies the stream: one that was deleted and created again has another epoch, and old positions are invalid in it. */
  readonly epoch: string;
  /** The sequence number before the oldest kept entry. */
  readonly floor: bigint;
  readonly head: Position;
}

/** Entries after a position, in order, and the bounds at that time. Starts later than asked when entries were trimmed, and at the position when a later entry has its number. */
export interface Page extends Bounds {
  readonly entries: readonly Entry[];
}

/** Entries of one append: contiguous, in order, of one epoch. */
export interface Appended {
  readonly epoch: string;
  readonly entries: readonly Entry[];
}

/** Gets a stream's appends. They may be lost or repeated: the sequence numbers show it. */
export interface Watcher {
  appended(appended: Appended): void;
  /** Entries may have been missed: read from your position. */
  missed(): void;
  /** Its position, so that the log can read for many watchers at once; undefined when it reads by itself. */
  position?(): Position | undefined;
}

export interface AppendOptions {
  /** Fails with StreamGone when the stream has another epoch. Without it, a missing stream is created. */
  readonly epoch?: string;
  /** Fencing token: fails with Fenced once a higher one was used on this stream. */
  readonly fence?: bigint;
}

/** The entries that trimming keeps of a stream; at least the last one. */
export interface Retention {
  /** Keeps entries from this time on, in milliseconds. */
  readonly since?: number;
  readonly entries?: number;
  readonly bytes?: number;
  /** Keeps every entry after this sequence number. */
  readonly upTo?: bigint;
}

/** Ordered logs with cursors, by name, on Postgres or Redis Streams. A stream expires one TTL after its last append. */
export interface Log extends Service {
  /** Appends all entries or none; returns the bounds after them. */
  append(stream: string, entries: readonly string[], options?: AppendOptions): Promise<Bounds>;
  /** The next entries after a position, at least one if there is one; undefined for a missing stream. */
  read(
    stream: string,
    after: Position,
    limits: { entries: number; bytes: number },
  ): Promise<Page | undefined>;
  /** The bounds of many streams, in order; undefined for missing ones. */
  bounds(streams: readonly string[]): Promise<(Bounds | undefined)[]>;
  /** Watches a stream, which need not exist, until the returned function is called. Once resolved, every append calls the watcher. */
  watch(stream: string, watcher: Watcher): Promise<() => void>;
  /**
   * Creates the stream, and its bookmark `ui` at its end, unless they exist; returns the bounds. A stream of an older
   * generation is replaced by an empty one; fails with StreamGone when it has a newer one.
   */
  open(stream: string, generation?: bigint): Promise<Bounds>;
  /**
   * Moves the bookmark `ui` forward, never back; ignores a missing stream. Returns the number of entries that another
   * program took from it as from a queue and did not acknowledge. It should be 0.
   */
  bookmark(stream: string, position: Position): Promise<number>;
  /** Removes entries outside the retention, perhaps not all at once; returns the number removed. */
  trim(stream: string, retention: Retention): Promise<number>;
  /** Deletes the stream, if it exists and has no newer generation. */
  delete(stream: string, generation?: bigint): Promise<void>;
}

/** A writer with a higher fencing token has appended: the caller must stop writing. */
export class Fenced extends Error {
  override readonly name = "Fenced";
}

/** The stream was deleted, or has another epoch. */
export class StreamGone extends Error {
  override readonly name = "StreamGone";
}
