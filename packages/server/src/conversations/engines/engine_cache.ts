import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import { withTimeout } from "../../kit/timeout.ts";
import { type ConversationRef, refKey } from "../conversation.ts";
import type { ConversationKey, Engine, EngineFactory } from "./engine.ts";
import { PublicError } from "./public_error.ts";

/** The life of a conversation that an engine belongs to. */
type EngineOwner = Omit<ConversationRef, "logName">;

export interface EngineCacheOptions {
  readonly factory: EngineFactory;
  /** How long an engine stays cached without a turn. */
  readonly idleMs: number;
  readonly max: number;
}

/** An engine that a turn is using. */
export interface CheckedOutEngine {
  readonly engine: Engine;
  /** Returns it to the cache, or closes it with `discard`. */
  release(discard?: boolean): void;
}

/** The engines of this server: one per conversation, cached for its next turn. */
export interface EngineCache extends Service {
  checkOut(conversation: ConversationKey & EngineOwner): CheckedOutEngine;
  /** Closes the engine of a deleted conversation. On other servers it is closed when it was idle for long enough. */
  drop(conversation: EngineOwner): void;
  readonly size: number;
}

interface CachedEngine {
  readonly engine: Engine;
  uses: number;
  cancelIdle: (() => void) | undefined;
}

const CLOSE_TIMEOUT_MS = 5_000;

/** Opens the cache. */
export function openEngineCache(context: Context, { factory, idleMs, max }: EngineCacheOptions): EngineCache {
  /** Least recently used first. */
  const cached = new Map<string, CachedEngine>();
  const closing = new Set<Promise<void>>();

  function close(key: string, entry: CachedEngine): void {
    entry.cancelIdle?.();
    if (cached.get(key) === entry) cached.delete(key);
    const closed = Promise.resolve()
      .then(() => entry.engine.close?.())
      .catch((error) =>
        context.log.warn({ err: (error as Error).message, engine: key }, "an engine did not close"),
      )
      .finally(() => closing.delete(closed));
    closing.add(closed);
  }

  function evictIdle(): void {
    if (cached.size < max) return;
    for (const [key, entry] of cached) {
      if (entry.uses === 0) return close(key, entry);
    }
    const message = "This server is at its limit of engines. Send the message again in a moment.";
    throw new PublicError(message, { code: "rate_limited" });
  }

  function release(key: string, entry: CachedEngine, discard: boolean): void {
    entry.uses--;
    // A dropped engine is closed already.
    if (cached.get(key) !== entry) return;
    if (discard) return close(key, entry);
    if (entry.uses > 0) return;
    cached.delete(key);
    cached.set(key, entry);
    entry.cancelIdle = context.clock.after(idleMs, () => close(key, entry));
  }

  return {
    checkOut(conversation) {
      const { convId, org, subject } = conversation;
      const key = refKey(conversation);
      let entry = cached.get(key);
      if (!entry) {
        evictIdle();
        entry = { engine: factory({ convId, org, subject }), uses: 0, cancelIdle: undefined };
        cached.set(key, entry);
      }
      const used = entry;
      used.cancelIdle?.();
      used.cancelIdle = undefined;
      used.uses++;
      let released = false;
      return {
        engine: used.engine,
        release(discard = false) {
          if (released) return;
          released = true;
          release(key, used, discard);
        },
      };
    },
    drop(conversation) {
      const key = refKey(conversation);
      const entry = cached.get(key);
      if (entry) close(key, entry);
    },
    get size() {
      return cached.size;
    },
    async stop() {
      for (const [key, entry] of [...cached]) close(key, entry);
      await withTimeout(context.clock, CLOSE_TIMEOUT_MS, Promise.all(closing), undefined);
    },
  };
}
