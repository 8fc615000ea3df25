import { setTimeout } from "node:timers/promises";

/** An answer to be made: so many tokens of four characters, at a pace or as fast as they are taken. */
export interface Answer {
  readonly tokens: number;
  readonly perSecond?: number;
}

export const TOKEN = "word";
/** So many characters make an entry of Khala's log when they come fast, and a message of other logs here. */
export const PIECE = 128;
const TICK_MS = 10;

/** The tokens of an answer. */
export async function* answerTokens({ tokens, perSecond }: Answer): AsyncGenerator<string, void> {
  const started = performance.now();
  for (let n = 0; n < tokens; n++) {
    while (perSecond !== undefined && n >= ((performance.now() - started) * perSecond) / 1_000)
      await setTimeout(TICK_MS);
    yield TOKEN;
  }
}

/** Keeps answers that are written from ending, so that they can be resumed, until it is told. */
export class Hold {
  #written = Promise.withResolvers<void>();
  #release = Promise.withResolvers<void>();

  /** The producer of the answer calls it: all of it was taken. */
  async end(): Promise<void> {
    this.#written.resolve();
    await this.#release.promise;
  }

  /** Resolves when the answer is written. */
  async written(): Promise<void> {
    await this.#written.promise;
    this.#written = Promise.withResolvers();
  }

  /** Lets all answers end. */
  release(): void {
    this.#release.resolve();
    this.#release = Promise.withResolvers();
  }
}
