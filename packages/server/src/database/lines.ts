import type pg from "pg";

/** A place in a line: what is sent here comes after what those before sent. */
export interface Place {
  readonly client: pg.PoolClient;
  /** Gives the place up, with the error if the connection is broken. */
  leave(failure?: Error): void;
}

interface Line {
  readonly client: Promise<pg.PoolClient>;
  places: number;
  failure: Error | undefined;
}

/**
 * Connections that some share while they use them at the same time. Each sends without waiting for the answers to those
 * before, and PostgreSQL takes what comes over a connection in its order.
 */
export class Lines {
  readonly #connect: () => Promise<pg.PoolClient>;
  readonly #lines = new Map<string, Line>();

  constructor(connect: () => Promise<pg.PoolClient>) {
    this.#connect = connect;
  }

  /** The last place of the line with this name. Whoever joins it in this order has to send in it. */
  async join(name: string): Promise<Place> {
    let line = this.#lines.get(name);
    if (!line) {
      line = { client: this.#connect(), places: 0, failure: undefined };
      this.#lines.set(name, line);
    }
    const mine = line;
    mine.places++;
    try {
      const client = await mine.client;
      return { client, leave: (failure) => this.#leave(name, mine, client, failure) };
    } catch (error) {
      this.#forget(name, mine);
      throw error;
    }
  }

  #leave(name: string, line: Line, client: pg.PoolClient, failure: Error | undefined): void {
    line.failure ??= failure;
    line.places--;
    // Nobody joins a line whose connection is broken.
    if (line.failure || line.places === 0) this.#forget(name, line);
    if (line.places === 0) client.release(line.failure);
  }

  #forget(name: string, line: Line): void {
    if (this.#lines.get(name) === line) this.#lines.delete(name);
  }
}
