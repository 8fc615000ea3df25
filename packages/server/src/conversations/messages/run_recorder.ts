import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { isDataError } from "../../database/database.ts";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { LeasedRun } from "../conversation.ts";
import type { Cursor } from "../log/cursor.ts";
import { readEvent } from "../timeline/timeline.ts";
import { Transcript } from "../timeline/transcript.ts";
import type { MessageStore } from "./message_store.ts";

export interface RecorderOptions {
  readonly store: Pick<MessageStore, "save">;
  readonly run: LeasedRun;
  /** The run's messages so far: the user's, and what is kept of a run that is resumed. */
  readonly messages: readonly TranscriptMessageJson[];
  /** Called once, when the run's lease is lost. */
  readonly onLost: () => void;
}

/** How often growing messages are stored, per MiB stored each time. */
const STORE_EVERY_MS = 2_000;
const MIB = 1 << 20;
/** How long the last store is retried. */
const FLUSH_FOR_MS = 15_000;

/** The lease of the run is lost: its messages are not this server's to write. */
export class LeaseLost extends Error {
  override readonly name = "LeaseLost";
}

/** Folds the events of a run that this server appends, and stores its messages, at intervals and before its end. */
export class RunRecorder {
  readonly #context: Context;
  readonly #options: RecorderOptions;
  readonly #transcript: Transcript;
  readonly #changed = new Set<string>();
  /** Appended entries that are not folded yet: deltas cost nothing but their place here. */
  #entries: string[] = [];
  #at: Cursor | undefined;
  #cancelTimer: (() => void) | undefined;
  #storing: Promise<void> | undefined;
  #intervalMs = STORE_EVERY_MS;

  constructor(context: Context, options: RecorderOptions) {
    this.#context = context;
    this.#options = options;
    this.#transcript = new Transcript(options.messages);
  }

  /** These entries of the run are in the log, which ends at `at`. */
  appended(entries: readonly string[], at: Cursor): void {
    this.#entries.push(...entries);
    this.#at = at;
    this.#cancelTimer ??= this.#context.clock.after(this.#intervalMs, () => {
      this.#cancelTimer = undefined;
      this.#store().catch((error) => {
        if (error instanceof LeaseLost) return this.#options.onLost();
        const { runId: run } = this.#options.run;
        this.#context.log.warn({ err: error.message, run }, "messages could not be stored; retrying");
      });
    });
  }

  /** Stores everything so far; retries for a while, and then throws. */
  async flush(): Promise<void> {
    const { clock, random, log } = this.#context;
    this.close();
    const deadline = clock.now() + FLUSH_FOR_MS;
    for (let failures = 0; ; failures++) {
      try {
        return await this.#store();
      } catch (error) {
        // A takeover fails the run whose messages the database refuses.
        if (error instanceof LeaseLost || isDataError(error) || clock.now() >= deadline) throw error;
        const details = { err: (error as Error).message, run: this.#options.run.runId };
        log.warn(details, "the messages of a run could not be stored; retrying");
        await sleep(clock, backoff(failures, random, { base: 100, cap: 2_000 }));
      }
    }
  }

  /** The log was lost, and the run continues in another one, from `at`: stores all of it there first. */
  async move(at: Cursor): Promise<void> {
    await this.#storing?.catch(() => {});
    this.#fold();
    this.#at = at;
    for (const { message_id = "" } of this.#transcript.last()) this.#changed.add(message_id);
    await this.flush();
  }

  /** The run's messages, up to the last entry. */
  messages(): readonly TranscriptMessageJson[] {
    this.#fold();
    return this.#transcript.last();
  }

  /** Stores nothing more by itself. */
  close(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #fold(): void {
    const entries = this.#entries;
    this.#entries = [];
    for (const data of entries) {
      const id = this.#transcript.add(readEvent(data));
      if (id) this.#changed.add(id);
    }
  }

  /** One at a time: an older state must not replace a newer one. */
  async #store(): Promise<void> {
    while (this.#storing) await this.#storing.catch(() => {});
    this.#storing = this.#storeNow().finally(() => {
      this.#storing = undefined;
    });
    await this.#storing;
  }

  async #storeNow(): Promise<void> {
    const { store, run } = this.#options;
    this.#fold();
    const at = this.#at;
    if (!at || this.#changed.size === 0) return;
    const all = this.#transcript.last();
    const changed = all.filter(({ message_id = "" }) => this.#changed.has(message_id));
    this.#changed.clear();
    try {
      const bytes = changed.reduce((sum, message) => sum + sizeOf(message), 0);
      this.#intervalMs = STORE_EVERY_MS * (1 + Math.floor(bytes / MIB));
      if (!(await store.save(run, changed, at))) throw new LeaseLost();
    } catch (error) {
      for (const { message_id = "" } of changed) this.#changed.add(message_id);
      throw error;
    }
  }
}

/** About the characters of a message. */
function sizeOf({ parts = [] }: TranscriptMessageJson): number {
  return parts.reduce((sum, part) => sum + (part.text ?? part.reasoning ?? JSON.stringify(part)).length, 0);
}
