import { notFound } from "../../access/access.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { type ConversationRef, refKey } from "../conversation.ts";
import { type Log, StreamGone } from "../log/log.ts";
import type { ConversationMetrics } from "../metrics.ts";
import { ConversationReader, EndOfTick } from "./reader.ts";

export interface ReadersOptions {
  readonly log: Log;
  readonly metrics: ConversationMetrics;
  readonly serverId: string;
  /** Whether a conversation was deleted, rather than its log lost. */
  readonly isDeleted: (conversation: ConversationRef) => Promise<boolean>;
  readonly recentBytes: number;
  /** How long a reader stays open after its last user has left. */
  readonly graceMs: number;
  /** How often logs are polled for entries whose notification was lost. */
  readonly pollMs: number;
  /** How often bookmarks follow the readers. */
  readonly bookmarkMs: number;
}

/** A reader that stays open until it is released. */
export interface AcquiredReader {
  readonly reader: ConversationReader;
  release(): void;
}

/** The readers of this server: one per conversation, shared by all its sockets. */
export interface Readers extends Service {
  /** The reader of a conversation; not_found when it was deleted and its name is used by another one. */
  acquire(conversation: ConversationRef): Promise<AcquiredReader>;
  /** The conversation changed on this server: its reader, if any, reads now. */
  missed(conversation: ConversationRef): void;
  /** The number of readers. */
  readonly size: number;
}

interface CachedReader {
  readonly stream: string;
  /** Its name in logs. */
  readonly name: string;
  readonly started: Promise<ConversationReader>;
  reader: ConversationReader | undefined;
  holders: number;
  cancelGrace: (() => void) | undefined;
  bookmarked: bigint;
  /** Unacknowledged entries of the consumer group `ui`; see Log.bookmark. */
  pending: number;
}

/** Readers per query. */
const BATCH_SIZE = 100;

/** Opens the readers. */
export function openReaders(context: Context, options: ReadersOptions): Readers {
  const { log, metrics } = options;
  const kept = new Map<string, CachedReader>();
  const endOfTick = new EndOfTick();
  /** Entries that the last poll found beyond the readers' heads. */
  let lag = 0n;

  function start(conversation: ConversationRef, key: string): CachedReader {
    const { convId, logName: stream, generation } = conversation;
    const name = `ws-forwarder:${options.serverId}:${stream}`;
    const isDeleted = () => options.isDeleted(conversation);
    const of = { ...options, stream, generation, convId, endOfTick, isDeleted };
    const started = ConversationReader.start(context, of).catch((error) => {
      throw error instanceof StreamGone ? notFound("conversation", convId) : error;
    });
    const entry: CachedReader = {
      stream,
      name,
      started,
      reader: undefined,
      holders: 0,
      cancelGrace: undefined,
      bookmarked: 0n,
      pending: 0,
    };
    kept.set(key, entry);
    started.then(
      (reader) => {
        entry.reader = reader;
        entry.bookmarked = reader.head.seq;
        context.log.info({ reader: name, skipped: String(reader.head.seq) }, "a reader started at the end");
      },
      () => forget(key, entry),
    );
    return entry;
  }

  function forget(key: string, entry: CachedReader): void {
    entry.cancelGrace?.();
    if (kept.get(key) === entry) kept.delete(key);
  }

  function stopReader(key: string, entry: CachedReader): void {
    forget(key, entry);
    entry.reader?.stop();
    context.log.info({ reader: entry.name }, "a reader stopped");
  }

  async function acquire(conversation: ConversationRef): Promise<AcquiredReader> {
    const key = refKey(conversation);
    let entry = kept.get(key);
    // A reader that ended, because its log was deleted, is replaced.
    if (entry?.reader?.ended) {
      stopReader(key, entry);
      entry = undefined;
    }
    entry ??= start(conversation, key);
    entry.cancelGrace?.();
    entry.cancelGrace = undefined;
    entry.holders++;
    const release = once(() => {
      if (--entry.holders > 0 || kept.get(key) !== entry) return;
      entry.cancelGrace = context.clock.after(options.graceMs, () => stopReader(key, entry));
    });
    try {
      return { reader: await entry.started, release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Visits all items in batches, spread over most of `ms`, so that live traffic is not delayed. */
  async function spread<T>(
    all: readonly T[],
    ms: number,
    signal: AbortSignal,
    visit: (batch: readonly T[]) => Promise<void>,
  ): Promise<void> {
    const pause = (ms / Math.ceil(all.length / BATCH_SIZE)) * 0.8;
    for (let at = 0; at < all.length; at += BATCH_SIZE) {
      if (at > 0) await sleep(context.clock, pause, signal);
      if (signal.aborted) return;
      await visit(all.slice(at, at + BATCH_SIZE));
    }
  }

  const polling = runLoop(context, "conversation poll", {
    wake: new Wake(),
    idleMs: options.pollMs,
    async step(signal) {
      const all = [...kept.values()].filter(({ reader }) => reader && !reader.ended);
      let missing = 0n;
      await spread(all, options.pollMs, signal, async (batch) => {
        const heads = await log.bounds(batch.map(({ stream }) => stream));
        batch.forEach(({ reader }, i) => {
          const bounds = heads[i];
          const same = bounds?.epoch === reader!.epoch;
          const { seq, time } = reader!.head;
          if (same && bounds.head.seq === seq && bounds.head.time === time) return;
          if (same && bounds.head.seq > seq) missing += bounds.head.seq - seq;
          reader!.missed();
        });
      });
      if (!signal.aborted) lag = missing;
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
      await spread(moved, options.bookmarkMs, signal, async (batch) => {
        await Promise.all(batch.map(moveBookmark));
      });
      return false;
    },
  });

  async function moveBookmark(entry: CachedReader): Promise<void> {
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
  metrics.lag.addCallback((result) => result.observe(Number(lag)));

  return {
    acquire,
    missed: (conversation) => kept.get(refKey(conversation))?.reader?.missed(),
    get size() {
      return kept.size;
    },
    async stop() {
      await Promise.all([polling.stop(), bookmarking.stop()]);
      for (const [key, entry] of [...kept]) {
        // A reader that is still starting stops afterwards.
        entry.started.then(
          (reader) => reader.stop(),
          () => {},
        );
        stopReader(key, entry);
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
