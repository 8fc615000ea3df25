import { KhalaError } from "@khala/contracts";
import type { EventJson } from "@khala/contracts/conversation/v1";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { type Cursor, formatCursor } from "../log/cursor.ts";
import { Fenced, type Log, type Position, StreamGone } from "../log/log.ts";
import { jsonb } from "../messages/message_row.ts";

/** The largest entry, in bytes. */
export const MAX_ENTRY_BYTES = 256 << 10;

const FIND_PAGE = { entries: 1_000, bytes: 16 << 20 };

/** An event as an entry of the log. What the table cannot hold is replaced here, so that devices show what is stored. */
export function entryText(runId: string, event: EventJson): string {
  const { text_delta, reasoning_delta } = event;
  const delta = text_delta ?? reasoning_delta;
  if (!delta) return jsonb({ run_id: runId, event });
  // Half of a surrogate pair stays in a delta: the next one may have the other half.
  const text = delta.text?.replaceAll("\0", "\ufffd") ?? "";
  return JSON.stringify({
    run_id: runId,
    event: { [text_delta ? "text_delta" : "reasoning_delta"]: { ...delta, text } },
  });
}

/**
 * The entry with which a run begins in a log that replaces a lost one: followers that came to it before have read what was
 * stored by then, and read the conversation again.
 */
export const RELOAD_ENTRY = entryText("", { branch_changed: { reload: true } });

export interface RunLogOptions {
  readonly log: Log;
  readonly stream: string;
  readonly generation: bigint;
  readonly fence: bigint;
}

/**
 * Appends a run's entries to the log with its fencing token, in order and exactly once: an append without a response is
 * looked up in the log before it is retried.
 */
export class RunLog {
  readonly #context: Context;
  readonly #options: RunLogOptions;
  readonly #epoch: string;
  #head: Position;

  private constructor(context: Context, options: RunLogOptions, epoch: string, head: Position) {
    this.#context = context;
    this.#options = options;
    this.#epoch = epoch;
    this.#head = head;
  }

  static async open(context: Context, options: RunLogOptions): Promise<RunLog> {
    const { epoch, head } = await options.log.open(options.stream, options.generation);
    return new RunLog(context, options, epoch, head);
  }

  /** The position after the last append. */
  get position(): Cursor {
    return { epoch: this.#epoch, ...this.#head };
  }

  /** The log was lost: the run continues in a new one of the same name. */
  reopen(): Promise<RunLog> {
    return RunLog.open(this.#context, this.#options);
  }

  /** Appends the entries; returns the cursor before the first. Retries for `tryForMs`, or until the signal aborts. */
  async append(entries: readonly string[], tryForMs: number, signal?: AbortSignal): Promise<string> {
    const { clock, random, log: logger } = this.#context;
    const { log, stream, fence } = this.#options;
    const deadline = clock.now() + tryForMs;
    for (let failures = 0; ; failures++) {
      try {
        const head =
          (failures > 0 && (await this.#find(entries))) ||
          (await log.append(stream, entries, { fence, epoch: this.#epoch })).head;
        this.#head = head;
        const before = head.seq - BigInt(entries.length);
        return formatCursor({ epoch: this.#epoch, seq: before, time: head.time });
      } catch (error) {
        if (!isTransient(error) || signal?.aborted || clock.now() >= deadline) throw error;
        logger.warn({ err: (error as Error).message, stream }, "an append failed; retrying");
        await sleep(clock, backoff(failures, random, { base: 50, cap: 1_000 }), signal);
        if (signal?.aborted) throw error;
      }
    }
  }

  /**
   * The position of the entries, if the failed append was committed. Fencing makes this the run's only writer; others may
   * have written in between, but never within one append.
   */
  async #find(entries: readonly string[]): Promise<Position | undefined> {
    const { log, stream } = this.#options;
    let found: Position | undefined;
    let length = 0;
    for (let after = this.#head; ; ) {
      const page = await log.read(stream, after, FIND_PAGE);
      if (!page || page.epoch !== this.#epoch) throw new StreamGone("The stream was deleted.");
      for (const entry of page.entries) {
        if (length === 0 && entry.data !== entries[0]) continue;
        found = entry;
        if (++length === entries.length) return found;
      }
      const last = page.entries.at(-1);
      if (!last) return found;
      after = last;
    }
  }
}

/** Whether a retry can succeed. */
function isTransient(error: unknown): boolean {
  if (error instanceof Fenced || error instanceof StreamGone) return false;
  return !(error instanceof KhalaError) || error.meaning.retryable;
}
