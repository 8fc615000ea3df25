import { topicForConv } from "@khala/contracts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Log } from "../log/log.ts";
import type { ConversationMetrics } from "../metrics.ts";
import { ConversationReader } from "./reader.ts";
import { Turn } from "./turn.ts";

export interface ReadersOptions {
  readonly log: Log;
  readonly metrics: ConversationMetrics;
  readonly serverId: string;
  readonly recentBytes: number;
  /** How long a reader is kept after the last one has left. */
  readonly graceMs: number;
  /** How often logs are asked for news that nobody told of. */
  readonly pollMs: number;
  /** How often the bookmarks of conversations that moved are moved. */
  readonly bookmarkMs: number;
}

/** A reader that is kept until it is released. */
export interface HeldReader {
  readonly reader: ConversationReader;
  release(): void;
}

/** The readers of this server: one per conversation, however many follow it. */
export interface Readers extends Service {
  acquire(convId: string): Promise<HeldReader>;
  /** Something happened to a conversation here: if it is read, its reader looks at once. */
  missed(convId: string): void;
  /** How many run. */
  readonly size: number;
}

interface Kept {
  readonly stream: string;
  /** How it is called in logs. */
  readonly name: string;
  readonly started: Promise<ConversationReader>;
  reader: ConversationReader | undefined;
  holders: number;
  cancelGrace: (() => void) | undefined;
  bookmarked: bigint;
  /** Entries that somebody took from the bookmark as from a queue. */
  pending: number;
}

/** What is asked or moved at once. */
const SLICE = 100;

/** Opens the readers. */
export function openReaders(context: Context, options: ReadersOptions): Readers {
  const { log, metrics } = options;
  const kept = new Map<string, Kept>();
  const turn = new Turn();
  /** Entries that the last poll found and the readers had not. */
  let behind = 0n;

  function start(convId: string): Kept {
    const name = `ws-forwarder:${options.serverId}:${convId}`;
    const stream = topicForConv(convId);
    const started = ConversationReader.start(context, { ...options, stream, convId, turn });
    const entry: Kept = {
      stream,
      name,
      started,
      reader: undefined,
      holders: 0,
      cancelGrace: undefined,
      bookmarked: 0n,
      pending: 0,
    };
    kept.set(convId, entry);
    started.then(
      (reader) => {
        entry.reader = reader;
        entry.bookmarked = reader.head.seq;
        context.log.info({ reader: name, skipped: String(reader.head.seq) }, "a reader started at the end");
      },
      () => forget(convId, entry),
    );
    return entry;
  }

  function forget(convId: string, entry: Kept): void {
    entry.cancelGrace?.();
    if (kept.get(convId) === entry) kept.delete(convId);
  }

  function stopReader(convId: string, entry: Kept): void {
    forget(convId, entry);
    entry.reader?.stop();
    context.log.info({ reader: entry.name }, "a reader stopped");
  }

  async function acquire(convId: string): Promise<HeldReader> {
    let entry = kept.get(convId);
    // One that ended because its log was deleted is replaced by one for what is there now.
    if (entry?.reader?.over) {
      stopReader(convId, entry);
      entry = undefined;
    }
    entry ??= start(convId);
    entry.cancelGrace?.();
    entry.cancelGrace = undefined;
    entry.holders++;
    const release = once(() => {
      if (--entry.holders > 0 || kept.get(convId) !== entry) return;
      entry.cancelGrace = context.clock.after(options.graceMs, () => stopReader(convId, entry));
    });
    try {
      return { reader: await entry.started, release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Does something for all of these in slices, spread over most of a time, so that nobody's words wait behind it. */
  async function spread<T>(
    all: readonly T[],
    ms: number,
    signal: AbortSignal,
    visit: (slice: readonly T[]) => Promise<void>,
  ): Promise<void> {
    const pause = (ms / Math.ceil(all.length / SLICE)) * 0.8;
    for (let at = 0; at < all.length; at += SLICE) {
      if (at > 0) await sleep(context.clock, pause, signal);
      if (signal.aborted) return;
      await visit(all.slice(at, at + SLICE));
    }
  }

  const polling = runLoop(context, "conversation poll", {
    wake: new Wake(),
    idleMs: options.pollMs,
    async step(signal) {
      const all = [...kept.values()].filter(({ reader }) => reader && !reader.over);
      let missing = 0n;
      await spread(all, options.pollMs, signal, async (slice) => {
        const heads = await log.heads(slice.map(({ stream }) => stream));
        slice.forEach(({ reader }, i) => {
          const bounds = heads[i];
          const same = bounds?.epoch === reader!.epoch;
          if (same && bounds.head.seq === reader!.head.seq) return;
          if (same && bounds.head.seq > reader!.head.seq) missing += bounds.head.seq - reader!.head.seq;
          reader!.missed();
        });
      });
      if (!signal.aborted) behind = missing;
      return false;
    },
  });

  const bookmarking = runLoop(context, "conversation bookmarks", {
    wake: new Wake(),
    idleMs: options.bookmarkMs,
    async step(signal) {
      const moved = [...kept.values()].filter(
        ({ reader, bookmarked }) => reader && reader.head.seq > bookmarked,
      );
      await spread(moved, options.bookmarkMs, signal, async (slice) => {
        await Promise.all(slice.map(moveBookmark));
      });
      return false;
    },
  });

  async function moveBookmark(entry: Kept): Promise<void> {
    const { head } = entry.reader!;
    entry.pending = await log.bookmark(entry.stream, head);
    entry.bookmarked = head.seq;
  }

  metrics.readers.addCallback((result) => result.observe(kept.size));
  metrics.pending.addCallback((result) => {
    let pending = 0;
    for (const entry of kept.values()) pending += entry.pending;
    result.observe(pending);
  });
  metrics.lag.addCallback((result) => result.observe(Number(behind)));

  return {
    acquire,
    missed: (convId) => kept.get(convId)?.reader?.missed(),
    get size() {
      return kept.size;
    },
    async stop() {
      await Promise.all([polling.stop(), bookmarking.stop()]);
      for (const [convId, entry] of [...kept]) {
        // One that is just starting is stopped when it has.
        entry.started.then(
          (reader) => reader.stop(),
          () => {},
        );
        stopReader(convId, entry);
      }
    },
  };
}

function once(fn: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    fn();
  };
}
