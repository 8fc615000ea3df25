import { KhalaError } from "@khala/contracts";
import { backoff } from "../../kit/backoff.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { openSetAside, type SetAside } from "../observe/set_aside.ts";

/** Rows with a due time, and how they are processed. Every step is idempotent. */
export interface Due<R> {
  /** Claims rows due at `now`, oldest first, by moving their due time to `until`. */
  claim(now: Date, until: Date, limit: number): Promise<R[]>;
  /** Processes all of the rows, or throws. */
  send(rows: readonly R[]): Promise<void>;
  /** Deletes processed rows. */
  finish(rows: readonly R[]): Promise<void>;
  /** Stores a row that was refused for good with its error, and removes it here, in one transaction. */
  refuse(row: R, error: KhalaError): Promise<void>;
  /** Releases rows that were not processed; they are due at `at`. */
  release(rows: readonly R[], at: Date): Promise<void>;
  /** The due time of the next row. */
  next(): Promise<Date | undefined>;
  /** Log fields of a row, which name it. */
  describe(row: R): object;
  /** Whose row it is. */
  orgOf(row: R): string;
}

export interface SweepOptions {
  /** How often it polls for rows that other processes left. */
  readonly pollMs: number;
  /** Rows per claim. */
  readonly batch?: number;
  readonly setAside?: SetAside;
}

/** A loop over rows with a due time. */
export interface Sweep extends Service {
  /** Checks for due rows now. */
  wake(): void;
}

/** After this many consecutive rows that fail for the first time, the rows are not the cause. */
const GIVE_UP_AFTER = 3;
const OTHERS_MS = 100;
/** How long rows stay claimed by a process that died. */
const CLAIM_MS = 30_000;
/** When a row that failed is tried again, from the first failure on. */
const RETRY = { base: 100, cap: 60_000 };

/** Starts a loop that several processes may share. */
export function startSweep<R>(context: Context, name: string, due: Due<R>, options: SweepOptions): Sweep {
  const { pollMs, batch = 100, setAside = openSetAside(context) } = options;
  const wake = new Wake();
  const now = (later = 0) => new Date(context.clock.now() + later);
  let cancelTimer: (() => void) | undefined;

  async function step(): Promise<boolean> {
    cancelTimer?.();
    cancelTimer = undefined;
    const next = await due.next();
    const wait = next ? next.getTime() - context.clock.now() : pollMs;
    if (wait > 0) return checkAgain(wait);
    const rows = await due.claim(now(), now(CLAIM_MS), batch);
    // Other processes have claimed the due rows.
    if (rows.length === 0) return checkAgain(OTHERS_MS);
    await sendAll(rows);
    return true;
  }

  function checkAgain(ms: number): false {
    if (ms < pollMs) cancelTimer = context.clock.after(ms, () => wake.wake());
    return false;
  }

  async function sendAll(rows: readonly R[]): Promise<void> {
    if (rows.length === 1) return sendEach(rows);
    try {
      await due.send(rows);
    } catch {
      return sendEach(rows);
    }
    await due.finish(rows);
  }

  /** Processes rows one by one: one that fails is set aside and does not block the others. */
  async function sendEach(rows: readonly R[]): Promise<void> {
    let newFailures = 0;
    for (const [index, row] of rows.entries()) {
      const item = [due.orgOf(row), JSON.stringify(due.describe(row))] as const;
      try {
        await due.send([row]);
        newFailures = 0;
      } catch (error) {
        if (!isRefusal(error)) {
          const failures = setAside.failed(name, ...item, error);
          await due.release([row], now(backoff(failures, context.random, RETRY)));
          if (failures > 1 || ++newFailures < GIVE_UP_AFTER) continue;
          await due.release(rows.slice(index + 1), now());
          throw error;
        }
        await due.refuse(row, error);
        setAside.succeeded(name, ...item);
        setAside.refused(name, due.describe(row), error);
        continue;
      }
      setAside.succeeded(name, ...item);
      await due.finish([row]);
    }
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

/** An artifact that conflicts with an existing one, or is too large, is refused for good. */
function isRefusal(error: unknown): error is KhalaError {
  return error instanceof KhalaError && !error.meaning.retryable;
}
