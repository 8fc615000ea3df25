/** Somebody who does something at the end of a turn. */
export interface TurnTaker {
  turned(): void;
}

/** The turn of the event loop that is under way: what many wait for is one callback of the loop, not one each. */
export class Turn {
  #waiting: TurnTaker[] = [];

  /** Calls the taker once, when what has come in this turn is worked off. */
  end(taker: TurnTaker): void {
    if (this.#waiting.push(taker) === 1) setImmediate(this.#ended);
  }

  readonly #ended = (): void => {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const taker of waiting) taker.turned();
  };
}
