import type { Service } from "../../kit/service.ts";

/** A place in a stream: the entry's contiguous number, and its time, which an engine may need to find it. */
export interface Position {
  readonly seq: bigint;
  /** Milliseconds; never smaller than that of an entry before it. */
  readonly time: number;
}

/** An entry: its place, and the text that was appended, which has no line breaks. */
export interface Entry extends Position {
  readonly data: string;
}

/** What is kept of a stream. It can be read from any position in [floor, head]. */
export interface Bounds {
  /** Another one means another stream under the same name: positions of the old one mean nothing in it. */
  readonly epoch: string;
  /** The sequence before the oldest entry that is kept. */
  readonly floor: bigint;
  readonly head: Position;
}

/** Entries after a position, in order, and the bounds at that time. The first is not the next one if that was trimmed. */
export interface Page extends Bounds {
  readonly entries: readonly Entry[];
}

/** Entries as they are appended: contiguous within the call, in order, of one epoch. */
export interface News {
  readonly epoch: string;
  readonly entries: readonly Entry[];
}

/** Who is told of a stream's news. News may be lost or come twice: the sequence tells. */
export interface Watcher {
  news(news: News): void;
  /** Something may have been missed: read from where you are. */
  missed(): void;
  /** Where it is, for a log that reads for many at once; undefined when it wants to read by itself. */
  position?(): Position | undefined;
}

export interface AppendOptions {
  /** The stream must still be this one; StreamGone otherwise. Without it a stream that does not exist is made. */
  readonly epoch?: string;
  /** Refused as Fenced once a higher one was seen, and remembered. */
  readonly fence?: bigint;
}

/** What to keep of a stream, at least its last entry. */
export interface Keep {
  /** Entries from this time on, in milliseconds. */
  readonly since?: number;
  readonly entries?: number;
  readonly bytes?: number;
}

/**
 * Ordered logs with cursors, by name: Postgres, Redis Streams. Everything that is appended lives for the log's TTL after
 * the last append, and not longer, whoever runs.
 */
export interface Log extends Service {
  /** Appends all of these or none, and answers where the last one is. */
  append(stream: string, entries: readonly string[], options?: AppendOptions): Promise<Bounds>;
  /** The next entries after a position, at least one if there is one; undefined when there is no such stream. */
  read(
    stream: string,
    after: Position,
    limits: { entries: number; bytes: number },
  ): Promise<Page | undefined>;
  /** The bounds of many streams at once, in order; undefined for what does not exist. */
  heads(streams: readonly string[]): Promise<(Bounds | undefined)[]>;
  /**
   * Tells of news until the returned function is called. Once this resolves, whatever is appended is told, or
   * `missed` is called. A stream need not exist.
   */
  watch(stream: string, watcher: Watcher): Promise<() => void>;
  /** Makes the stream if it is not there, and its bookmark `ui` at its end; answers the bounds. */
  open(stream: string): Promise<Bounds>;
  /**
   * Moves the bookmark `ui` forward, never back. A stream that is not there has none, which is no error. Answers how many
   * entries somebody has taken from it as from a queue and not settled: nobody should.
   */
  bookmark(stream: string, position: Position): Promise<number>;
  /** Removes what need not be kept, perhaps a little less; answers how many entries went. */
  trim(stream: string, keep: Keep): Promise<number>;
  /** Removes the stream, if it is there. */
  delete(stream: string): Promise<void>;
}

/** Somebody with a higher fence has written: whoever gets this must stop. */
export class Fenced extends Error {
  override readonly name = "Fenced";
}

/** The stream was deleted, or is another one by now. */
export class StreamGone extends Error {
  override readonly name = "StreamGone";
}
