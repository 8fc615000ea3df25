import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Stream } from "./stream.ts";

/** Somebody who waits for a stream to change. Begin to watch, then read, then wait: no change is missed. */
export interface Watcher extends Disposable {
  /** Says what was read last, so that a change that nobody told us of is noticed. */
  saw(stream: Pick<Stream, "tail" | "closed">): void;
  /** Resolves when the stream may have changed, after `ms`, or when the signal aborts. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
}

interface Seat {
  readonly wake: Wake;
  seen: Pick<Stream, "tail" | "closed"> | undefined;
}

/**
 * Wakes those who wait. This process's own commits and the wakeups of others wake at once; one statement per interval looks at
 * all watched streams together, for the wakeups that were lost.
 */
export class Watchers implements Service {
  readonly #context: Context;
  readonly #seats = new Map<bigint, Set<Seat>>();
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
    const seat: Seat = { wake: new Wake(), seen: undefined };
    const seats = this.#seats.get(id) ?? new Set();
    this.#seats.set(id, seats.add(seat));
    return {
      saw({ tail, closed }) {
        seat.seen = { tail, closed };
      },
      wait: (ms, signal) => seat.wake.wait(this.#context, ms, signal),
      [Symbol.dispose]: () => {
        seats.delete(seat);
        if (seats.size === 0 && this.#seats.get(id) === seats) this.#seats.delete(id);
      },
    };
  }

  /** Wakes those who watch the stream. */
  changed(id: bigint): void {
    for (const { wake } of this.#seats.get(id) ?? []) wake.wake();
  }

  /** Wakes everybody: wakeups may have been lost. */
  recheck(): void {
    for (const id of this.#seats.keys()) this.changed(id);
  }

  stop(): Promise<void> {
    return this.#polling.stop();
  }

  async #poll(database: Database): Promise<void> {
    const ids = [...this.#seats.keys()];
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
      for (const { wake, seen } of this.#seats.get(id) ?? [])
        if (seen && (now?.tail !== seen.tail || now.closed !== seen.closed)) wake.wake();
    }
  }
}
