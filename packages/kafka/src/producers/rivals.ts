import { KhalaError } from "@khala/contracts";
import { backoff, type Context } from "@khala/server/blackboard";

/** One may be a process that was replaced, or a broker that was lost. */
const SUSPECT = 3;
const WINDOW_MS = 60_000;
const WAIT = { base: 500, cap: 15_000 };

/**
 * Who else uses a transactional id. Two that do would fence each other for ever: each waits longer and longer before it
 * takes the id again, and says what is wrong.
 */
export class Rivals {
  readonly id: string;
  readonly #context: Pick<Context, "clock" | "log" | "random">;
  #met: number[] = [];
  #waitUntil = 0;

  constructor(context: Pick<Context, "clock" | "log" | "random">, id: string) {
    this.#context = context;
    this.id = id;
  }

  /** Another has taken the id over. */
  met(): void {
    const { clock, log, random } = this.#context;
    const now = clock.now();
    this.#met = [...this.#met.filter((at) => at > now - WINDOW_MS), now];
    const over = this.#met.length - SUSPECT;
    if (over < 0) return;
    const waitMs = backoff(over, random, WAIT);
    this.#waitUntil = now + waitMs;
    log.error(
      { transactional_id: this.id, times: this.#met.length, wait_ms: Math.round(waitMs) },
      "another process uses this transactional id: give every process its own KAFKA_TX_ID",
    );
  }

  /** Throws while it is too early to take the id again. */
  refuse(): void {
    const waitMs = Math.ceil(this.#waitUntil - this.#context.clock.now());
    if (waitMs <= 0) return;
    throw new KhalaError(
      "unavailable",
      `Another process uses the transactional id ${this.id}. Give every process its own KAFKA_TX_ID; this one tries again.`,
      { retry_after_ms: waitMs },
    );
  }
}
