import type { Environment } from "../environment.ts";

/** Items processed without yielding: one or two milliseconds of work. */
export const SLICE_ITEMS = 2_000;

/** Splits long work into slices, and yields to the event loop between them: `if (slices.isOver()) await slices.yieldControl()`. */
export class WorkSlices {
  readonly #environment: Pick<Environment, "timer" | "yieldControl">;
  #left = SLICE_ITEMS;

  constructor(environment: Pick<Environment, "timer" | "yieldControl">) {
    this.#environment = environment;
  }

  /** Counts items; true when the slice is used up. */
  isOver(items = 1): boolean {
    this.#left -= items;
    return this.#left <= 0;
  }

  async yieldControl(): Promise<void> {
    this.#left = SLICE_ITEMS;
    const { yieldControl, timer } = this.#environment;
    if (yieldControl) await yieldControl.call(this.#environment);
    else await new Promise<void>((resolve) => timer.call(this.#environment, 0, resolve));
  }
}
