import { KhalaError } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import { withTimeout } from "../../kit/timeout.ts";
import type { ConversationKey, Engine, EngineFactory } from "./engine.ts";

export interface EnginesOptions {
  readonly factory: EngineFactory;
  /** How long one is kept without a turn. */
  readonly idleMs: number;
  readonly max: number;
}

/** An engine in use. */
export interface EngineInUse {
  readonly engine: Engine;
  /** Gives it back; one that misbehaved is closed instead of kept. */
  release(discard?: boolean): void;
}

/** The engines of this server: one per conversation, kept for its next turn. */
export interface Engines extends Service {
  use(conversation: ConversationKey): EngineInUse;
  /** Closes the engine of a conversation that is no more. */
  drop(convId: string): void;
  readonly size: number;
}

interface Kept {
  readonly engine: Engine;
  uses: number;
  cancelIdle: (() => void) | undefined;
}

const CLOSE_TIMEOUT_MS = 5_000;

/** Opens the engines. */
export function openEngines(context: Context, { factory, idleMs, max }: EnginesOptions): Engines {
  /** The longest idle come first. */
  const kept = new Map<string, Kept>();
  const closing = new Set<Promise<void>>();

  function close(convId: string, entry: Kept): void {
    entry.cancelIdle?.();
    if (kept.get(convId) === entry) kept.delete(convId);
    const closed = Promise.resolve()
      .then(() => entry.engine.close?.())
      .catch((error) =>
        context.log.warn({ err: (error as Error).message, convId }, "an engine did not close"),
      )
      .finally(() => closing.delete(closed));
    closing.add(closed);
  }

  function makeRoom(): void {
    if (kept.size < max) return;
    for (const [convId, entry] of kept) {
      if (entry.uses === 0) return close(convId, entry);
    }
    const message = "This server has as many engines at work as it may. Send the message again in a moment.";
    throw new KhalaError("overloaded", message, { retry_after_ms: 1_000 });
  }

  function release(convId: string, entry: Kept, discard: boolean): void {
    entry.uses--;
    // One that was dropped meanwhile is closed already.
    if (kept.get(convId) !== entry) return;
    if (discard) return close(convId, entry);
    if (entry.uses > 0) return;
    kept.delete(convId);
    kept.set(convId, entry);
    entry.cancelIdle = context.clock.after(idleMs, () => close(convId, entry));
  }

  return {
    use(conversation) {
      const { convId } = conversation;
      let entry = kept.get(convId);
      if (!entry) {
        makeRoom();
        entry = { engine: factory(conversation), uses: 0, cancelIdle: undefined };
        kept.set(convId, entry);
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
      const entry = kept.get(convId);
      if (entry) close(convId, entry);
    },
    get size() {
      return kept.size;
    },
    async stop() {
      for (const [convId, entry] of [...kept]) close(convId, entry);
      await withTimeout(context.clock, CLOSE_TIMEOUT_MS, Promise.all(closing), undefined);
    },
  };
}
