import { KhalaError } from "@khala/contracts";
import type { EventJson } from "@khala/contracts/conversation/v1";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { formatCursor } from "../log/cursor.ts";
import { Fenced, type Log, type Position, StreamGone } from "../log/log.ts";

/** What an entry may have, in bytes. */
export const MAX_ENTRY_BYTES = 256 << 10;

/** An event as the log of a conversation keeps it. */
export function entryText(runId: string, event: EventJson): string {
  return JSON.stringify({ run_id: runId, event });
}

export interface RunLogOptions {
  readonly log: Log;
  readonly stream: string;
  readonly fence: bigint;
}

/**
 * A run's hand on the log of its conversation: appends with the fence, in order, each entry once. An append whose answer
 * was lost is looked for before it is tried again.
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
    const { epoch, head } = await options.log.open(options.stream);
    return new RunLog(context, options, epoch, head);
  }

  get epoch(): string {
    return this.#epoch;
  }

  /** Appends all of these; answers the cursor before the first. Tries for so long, or until the signal aborts. */
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
        logger.warn({ err: (error as Error).message, stream }, "an append failed and is tried again");
        await sleep(clock, backoff(failures, random, { base: 50, cap: 1_000 }), signal);
        if (signal?.aborted) throw error;
      }
    }
  }

  /** The position of entries that were appended after all. Only who holds the fence writes, so they are the next ones. */
  async #find(entries: readonly string[]): Promise<Position | undefined> {
    const { log, stream } = this.#options;
    const page = await log.read(stream, this.#head, { entries: entries.length, bytes: 16 << 20 });
    if (!page || page.epoch !== this.#epoch) throw new StreamGone("The stream was deleted.");
    const at = page.entries.findIndex(({ data }) => data === entries[0]);
    if (at < 0) return undefined;
    return page.entries[at + entries.length - 1] ?? page.head;
  }
}

/** False for what no repetition can help. */
function isTransient(error: unknown): boolean {
  if (error instanceof Fenced || error instanceof StreamGone) return false;
  return !(error instanceof KhalaError) || error.meaning.retryable;
}
