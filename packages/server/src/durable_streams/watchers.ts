import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Stream } from "./stream.ts";

/** Waits for a stream to change. Watch first, then read, then wait: so no change is missed. */
export interface Watcher extends Disposable {
  /** Records what was read last, so that polling detects a change without a wakeup. */
  saw(stream: Pick<Stream, "tail" | "closed">): void;
  /** Resolves when the stream may have changed, after `ms`, or when the signal aborts. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
}

interface Waiter {
  readonly wake: Wake;
  seen: Pick<Stream, "tail" | "closed"> | undefined;
}

/**
 * Wakes waiting readers. Commits of this process and wakeups of others wake at once; one query per interval polls all
 * watched streams for lost wakeups.
 */
export class Watchers implements Service {
  readonly #context: Context;
  readonly #waiters = new Map<bigint, Set<Waiter>>();
  readonly #polling: Service;

  constructor(database: Database, context: Context, pollMs: number) {
    this.#context = context;
    this.#polling = runLoop(context, "durable_streams_poll", {
      wake: new Wake(),
      idleMs: pollMs,
      step: async () => {
        await this.#poll(database);
        return false;
      },
    });
  }

  watch(id: bigint): Watcher {
    const waiter: Waiter = { wake: new Wake(), seen: undefined };
    const waiters = this.#waiters.get(id) ?? new Set();
    this.#waiters.set(id, waiters.add(waiter));
    return {
      saw({ tail, closed }) {
        waiter.seen = { tail, closed };
      },
      wait: (ms, signal) => waiter.wake.wait(this.#context, ms, signal),
      [Symbol.dispose]: () => {
        waiters.delete(waiter);
        if (waiters.size === 0 && this.#waiters.get(id) === waiters) this.#waiters.delete(id);
      },
    };
  }

  /** Wakes the watchers of a stream. */
  changed(id: bigint): void {
    for (const { wake } of this.#waiters.get(id) ?? []) wake.wake();
  }

  /** Wakes all watchers: wakeups may have been lost. */
  recheck(): void {
    for (const id of this.#waiters.keys()) this.changed(id);
  }

  stop(): Promise<void> {
    return this.#polling.stop();
  }

  async #poll(database: Database): Promise<void> {
    const ids = [...this.#waiters.keys()];
    if (ids.length === 0) return;
    const rows = await database.query<{ id: bigint; tail: bigint; closed: boolean }>({
      name: "durable_streams_poll",
      text: `SELECT id, tail, closed FROM runtime.durable_streams
        WHERE id = ANY ($1::bigint[]) AND (dies_at IS NULL OR dies_at > clock_timestamp())`,
      values: [ids],
    });
    const found = new Map(rows.map((row) => [row.id, row]));
    for (const id of ids) {
      const now = found.get(id);
      for (const { wake, seen } of this.#waiters.get(id) ?? [])
        if (seen && (now?.tail !== seen.tail || now.closed !== seen.closed)) wake.wake();
    }
  }
}
