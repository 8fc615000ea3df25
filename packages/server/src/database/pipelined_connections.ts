import type pg from "pg";

/** A connection that may be shared: queries are sent in the order of the checkouts. */
export interface Checkout {
  readonly client: pg.PoolClient;
  /** Returns the connection, with the error if it is broken. */
  release(failure?: Error): void;
}

interface SharedConnection {
  readonly client: Promise<pg.PoolClient>;
  readonly names: Set<string>;
  checkouts: number;
  failure: Error | undefined;
}

/**
 * Connections shared by name while they are in use. Each caller sends without waiting for the answers to those before, and
 * PostgreSQL executes what arrives on a connection in order. Beyond `max` connections several names share one.
 * bench/NOTES.md has the figures.
 */
export class PipelinedConnections {
  readonly #connect: () => Promise<pg.PoolClient>;
  readonly #max: number;
  readonly #shared = new Map<string, SharedConnection>();

  constructor(connect: () => Promise<pg.PoolClient>, max: number) {
    this.#connect = connect;
    this.#max = max;
  }

  /** Shares the connection of this name. The caller must send at once, to keep the order of the checkouts. */
  async checkOut(name: string): Promise<Checkout> {
    const shared = this.#shared.get(name) ?? this.#choose();
    this.#shared.set(name, shared);
    shared.names.add(name);
    shared.checkouts++;
    try {
      const client = await shared.client;
      return { client, release: (failure) => this.#release(shared, client, failure) };
    } catch (error) {
      this.#forget(shared);
      throw error;
    }
  }

  #choose(): SharedConnection {
    const open = new Set(this.#shared.values());
    if (open.size < this.#max)
      return { client: this.#connect(), names: new Set(), checkouts: 0, failure: undefined };
    return [...open].reduce((least, each) => (each.checkouts < least.checkouts ? each : least));
  }

  #release(shared: SharedConnection, client: pg.PoolClient, failure: Error | undefined): void {
    shared.failure ??= failure;
    shared.checkouts--;
    // A broken connection takes no further callers.
    if (shared.failure || shared.checkouts === 0) this.#forget(shared);
    if (shared.checkouts === 0) client.release(shared.failure);
  }

  #forget(shared: SharedConnection): void {
    for (const name of shared.names) if (this.#shared.get(name) === shared) this.#shared.delete(name);
  }
}
