import type { Environment } from "../environment.ts";

/** Pieces of work that are done without giving way: a millisecond or two for documents, on a machine of today. */
export const TURN = 2_000;

/** Long work in turns of bounded length, between which the platform gets to what waits: `if (turns.isOver()) await turns.giveWay()`. */
export class Turns {
  readonly #environment: Pick<Environment, "timer" | "giveWay">;
  #left = TURN;

  constructor(environment: Pick<Environment, "timer" | "giveWay">) {
    this.#environment = environment;
  }

  /** Counts what was done. */
  isOver(pieces = 1): boolean {
    this.#left -= pieces;
    return this.#left <= 0;
  }

  async giveWay(): Promise<void> {
    this.#left = TURN;
    const { giveWay, timer } = this.#environment;
    if (giveWay) await giveWay.call(this.#environment);
    else await new Promise<void>((resolve) => timer.call(this.#environment, 0, resolve));
  }
}
