import { KhalaError } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import { withTimeout } from "../../kit/timeout.ts";
import type { ConversationKey, Engine, EngineFactory } from "./engine.ts";

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
  checkOut(conversation: ConversationKey): CheckedOutEngine;
  /** Closes the engine of a deleted conversation. */
  drop(convId: string): void;
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

  function close(convId: string, entry: CachedEngine): void {
    entry.cancelIdle?.();
    if (cached.get(convId) === entry) cached.delete(convId);
    const closed = Promise.resolve()
      .then(() => entry.engine.close?.())
      .catch((error) =>
        context.log.warn({ err: (error as Error).message, convId }, "an engine did not close"),
      )
      .finally(() => closing.delete(closed));
    closing.add(closed);
  }

  function evictIdle(): void {
    if (cached.size < max) return;
    for (const [convId, entry] of cached) {
      if (entry.uses === 0) return close(convId, entry);
    }
    const message = "This server has reached its limit of engines. Send the message again in a moment.";
    throw new KhalaError("overloaded", message, { retry_after_ms: 1_000 });
  }

  function release(convId: string, entry: CachedEngine, discard: boolean): void {
    entry.uses--;
    // A dropped engine is closed already.
    if (cached.get(convId) !== entry) return;
    if (discard) return close(convId, entry);
    if (entry.uses > 0) return;
    cached.delete(convId);
    cached.set(convId, entry);
    entry.cancelIdle = context.clock.after(idleMs, () => close(convId, entry));
  }

  return {
    checkOut(conversation) {
      const { convId } = conversation;
      let entry = cached.get(convId);
      if (!entry) {
        evictIdle();
        entry = { engine: factory(conversation), uses: 0, cancelIdle: undefined };
        cached.set(convId, entry);
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
          release(convId, used, discard);
        },
      };
    },
    drop(convId) {
      const entry = cached.get(convId);
      if (entry) close(convId, entry);
    },
    get size() {
      return cached.size;
    },
    async stop() {
      for (const [convId, entry] of [...cached]) close(convId, entry);
      await withTimeout(context.clock, CLOSE_TIMEOUT_MS, Promise.all(closing), undefined);
    },
  };
}
