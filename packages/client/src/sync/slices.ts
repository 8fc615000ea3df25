import type { Environment } from "../environment.ts";

/** Pieces of work that are done without giving way: a millisecond or two for documents, on a machine of today. */
export const SLICE_ITEMS = 2_000;

/** Long work in turns of bounded length, between which the platform gets to what waits: `if (turns.isOver()) await turns.yieldControl()`. */
export class WorkSlices {
  readonly #environment: Pick<Environment, "timer" | "yieldControl">;
  #left = SLICE_ITEMS;

  constructor(environment: Pick<Environment, "timer" | "yieldControl">) {
    this.#environment = environment;
  }

  /** Counts what was done. */
  isOver(pieces = 1): boolean {
    this.#left -= pieces;
    return this.#left <= 0;
  }

  async yieldControl(): Promise<void> {
    this.#left = SLICE_ITEMS;
    const { yieldControl, timer } = this.#environment;
    if (yieldControl) await yieldControl.call(this.#environment);
    else await new Promise<void>((resolve) => timer.call(this.#environment, 0, resolve));
  }
}
