import type pg from "pg";

/** A connection that may be shared: queries are sent in the order of the checkouts. */
export interface Checkout {
  readonly client: pg.PoolClient;
  /** Returns the connection, with the error if it is broken. */
  release(failure?: Error): void;
}

interface SharedConnection {
  readonly client: Promise<pg.PoolClient>;
  checkouts: number;
  failure: Error | undefined;
}

/**
 * Connections shared by name while they are in use. Each caller sends without waiting for the answers to those before, and
 * PostgreSQL executes what arrives on a connection in order. bench/NOTES.md has the figures.
 */
export class PipelinedConnections {
  readonly #connect: () => Promise<pg.PoolClient>;
  readonly #shared = new Map<string, SharedConnection>();

  constructor(connect: () => Promise<pg.PoolClient>) {
    this.#connect = connect;
  }

  /** Shares the connection of this name. The caller must send at once, to keep the order of the checkouts. */
  async checkOut(name: string): Promise<Checkout> {
    let shared = this.#shared.get(name);
    if (!shared) {
      shared = { client: this.#connect(), checkouts: 0, failure: undefined };
      this.#shared.set(name, shared);
    }
    const mine = shared;
    mine.checkouts++;
    try {
      const client = await mine.client;
      return { client, release: (failure) => this.#release(name, mine, client, failure) };
    } catch (error) {
      this.#forget(name, mine);
      throw error;
    }
  }

  #release(name: string, shared: SharedConnection, client: pg.PoolClient, failure: Error | undefined): void {
    shared.failure ??= failure;
    shared.checkouts--;
    // A broken connection takes no further callers.
    if (shared.failure || shared.checkouts === 0) this.#forget(name, shared);
    if (shared.checkouts === 0) client.release(shared.failure);
  }

  #forget(name: string, shared: SharedConnection): void {
    if (this.#shared.get(name) === shared) this.#shared.delete(name);
  }
}
