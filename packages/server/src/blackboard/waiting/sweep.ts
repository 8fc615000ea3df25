import { KhalaError } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";

/** Rows that fall due, and what is done with them. Every step may be repeated. */
export interface Due<R> {
  /** Takes rows that are due at `now`, oldest first, and puts them off until `until` so that no other takes them. */
  claim(now: Date, until: Date, limit: number): Promise<R[]>;
  /** Does with all of them what is due, or throws. */
  send(rows: readonly R[]): Promise<void>;
  /** Forgets rows that were sent. */
  finish(rows: readonly R[]): Promise<void>;
  /** Gives rows back that were not sent. */
  release(rows: readonly R[], now: Date): Promise<void>;
  /** When the next row falls due. */
  next(): Promise<Date | undefined>;
  /** What a person must know of a row that the board will never take: it is forgotten. */
  describe(row: R): object;
}

export interface SweepOptions {
  /** How often it looks although nothing that it knows of is due: for what other processes left. */
  readonly pollMs: number;
  /** Rows at a time. */
  readonly batch?: number;
  /** How long a process that died keeps its rows from the others. */
  readonly claimMs?: number;
}

/** A loop over rows that fall due. */
export interface Sweep extends Service {
  /** Looks now: there is a new row. */
  wake(): void;
}

/** After so many failures one after the other it is not the rows that are at fault. */
const GIVE_UP_AFTER = 3;
const OTHERS_MS = 100;

/** Starts a loop that several processes may share. */
export function startSweep<R>(context: Context, name: string, due: Due<R>, options: SweepOptions): Sweep {
  const { pollMs, batch = 100, claimMs = 30_000 } = options;
  const wake = new Wake();
  const now = (later = 0) => new Date(context.clock.now() + later);
  const drops = context.telemetry.meter.createCounter("khala_board_refused_total", {
    description: "What waited to go back to the board, and was refused for good",
  });
  // A first one is a rise only from a zero.
  drops.add(0, { service: name });
  let cancelTimer: (() => void) | undefined;

  async function step(): Promise<boolean> {
    cancelTimer?.();
    cancelTimer = undefined;
    const next = await due.next();
    const wait = next ? next.getTime() - context.clock.now() : pollMs;
    if (wait > 0) return lookAgain(wait);
    const rows = await due.claim(now(), now(claimMs), batch);
    // Others are at what is due.
    if (rows.length === 0) return lookAgain(OTHERS_MS);
    await sendAll(rows);
    return true;
  }

  function lookAgain(ms: number): false {
    if (ms < pollMs) cancelTimer = context.clock.after(ms, () => wake.wake());
    return false;
  }

  async function sendAll(rows: readonly R[]): Promise<void> {
    try {
      await due.send(rows);
    } catch (error) {
      if (rows.length > 1) return await sendEach(rows);
      if (!isRefusal(error)) return await putBack(rows, error);
      refused(rows[0]!, error);
    }
    await due.finish(rows);
  }

  /** One that cannot be sent must not hold the others: it is tried again when its claim ends. */
  async function sendEach(rows: readonly R[]): Promise<void> {
    let failures = 0;
    for (const [index, row] of rows.entries()) {
      try {
        await due.send([row]);
        failures = 0;
      } catch (error) {
        if (isRefusal(error)) {
          refused(row, error);
        } else {
          if (++failures === GIVE_UP_AFTER) return await putBack(rows.slice(index), error);
          context.log.warn({ err: (error as Error).message, service: name }, "a row was not sent, and waits");
          continue;
        }
      }
      await due.finish([row]);
    }
  }

  function refused(row: R, error: KhalaError): void {
    const facts = { err: error.message, code: error.code, service: name, ...due.describe(row) };
    context.log.error(facts, "the board refuses this for good, so it is dropped");
    drops.add(1, { service: name });
  }

  async function putBack(rows: readonly R[], error: unknown): Promise<never> {
    await due.release(rows, now());
    throw error;
  }

  const loop = runLoop(context, name, { step, wake, idleMs: pollMs });
  return {
    wake: () => wake.wake(),
    async stop() {
      await loop.stop();
      cancelTimer?.();
    },
  };
}

/** An artifact that contradicts one that is there, or is too large, will be so for ever. */
function isRefusal(error: unknown): error is KhalaError {
  return error instanceof KhalaError && !error.meaning.retryable;
}
