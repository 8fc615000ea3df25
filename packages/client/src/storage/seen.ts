import type { Cursor } from "./storage.ts";

/** A change would be added to what another program, which this one knows nothing of, has stored. */
export class WrittenByAnother extends Error {
  constructor() {
    super("another program wrote to the topic meanwhile; it has to be stored as a whole");
  }
}

/** What is stored of a topic, as far as this program has seen it. */
export interface LastSeen {
  readonly cursor: Cursor | undefined;
}

/** Remembers what was last seen of each topic, so that changes are only added to what they are changes of. */
export class Seen {
  readonly #cursors = new Map<string, LastSeen>();

  saw(scope: string, topic: string, cursor: Cursor | undefined): void {
    this.#cursors.set(keyOf(scope, topic), { cursor });
  }

  /** Moves on with what `write` stores. When it fails it is not known any more what is stored, unless another program wrote. */
  async moves(
    scope: string,
    topic: string,
    to: Cursor,
    write: (last: LastSeen | undefined) => Promise<void>,
  ): Promise<void> {
    const key = keyOf(scope, topic);
    try {
      await write(this.#cursors.get(key));
      this.#cursors.set(key, { cursor: to });
    } catch (error) {
      if (!(error instanceof WrittenByAnother)) this.#cursors.delete(key);
      throw error;
    }
  }

  clear(): void {
    this.#cursors.clear();
  }
}

const keyOf = (scope: string, topic: string) => JSON.stringify([scope, topic]);
