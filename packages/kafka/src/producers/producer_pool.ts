import { KhalaError } from "@khala/contracts";
import type { Context } from "@khala/server/blackboard";
import { blockingCall } from "../client/blocking_calls.ts";
import type { KafkaProducer } from "../client/client_types.ts";

/** A leased value. Its holder releases it. */
export interface Lease<T> {
  readonly value: T;
  /** An unhealthy value is replaced at its next use. */
  release(healthy: boolean): void;
}

interface Slot<T> {
  readonly number: number;
  value?: T;
}

/** A fixed number of values, made at their first use, each used by one caller at a time, in turn. */
export class Pool<T> {
  readonly #make: (slot: number) => Promise<T>;
  readonly #free: Slot<T>[];
  readonly #waiting: { resolve(slot: Slot<T>): void; reject(error: unknown): void }[] = [];
  readonly #count: number;
  #closed: Error | undefined;
  #drained: (() => void) | undefined;

  constructor(count: number, make: (slot: number) => Promise<T>) {
    this.#count = count;
    this.#make = make;
    this.#free = Array.from({ length: count }, (_, number) => ({ number }));
  }

  /** Waits for a free value, in the order of the calls. */
  async take(): Promise<Lease<T>> {
    const slot = await this.#slot();
    try {
      slot.value ??= await this.#make(slot.number);
    } catch (error) {
      this.#release(slot);
      throw error;
    }
    let released = false;
    return {
      value: slot.value,
      release: (healthy) => {
        if (released) return;
        released = true;
        if (!healthy) delete slot.value;
        this.#release(slot);
      },
    };
  }

  /** Rejects all waiting and later callers. */
  close(reason: Error): void {
    this.#closed ??= reason;
    for (const waiter of this.#waiting.splice(0)) waiter.reject(this.#closed);
  }

  /** Waits until none is in use, and returns the values. */
  async drain(): Promise<T[]> {
    this.close(new KhalaError("shutting_down", "The board is stopping. Try again on another server."));
    if (this.#free.length < this.#count)
      await new Promise<void>((resolve) => {
        this.#drained = resolve;
      });
    return this.#free.flatMap(({ value }) => (value === undefined ? [] : [value]));
  }

  #slot(): Promise<Slot<T>> {
    if (this.#closed) return Promise.reject(this.#closed);
    // Prefers a free value that exists already.
    const at = this.#free.findIndex(({ value }) => value !== undefined);
    const [slot] = this.#free.splice(Math.max(0, at), 1);
    if (slot) return Promise.resolve(slot);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
    });
  }

  #release(slot: Slot<T>): void {
    const next = this.#waiting.shift();
    if (next) return next.resolve(slot);
    this.#free.push(slot);
    if (this.#free.length === this.#count) this.#drained?.();
  }
}

/** A transaction that takes longer is ended by the brokers, and a record that takes longer by the client. */
export const PRODUCER_TIMEOUT_MS = 15_000;

/** Connects, or leaves nothing open. */
export async function connectProducer(producer: KafkaProducer): Promise<KafkaProducer> {
  try {
    await blockingCall(() => producer.connect());
    return producer;
  } catch (error) {
    await disconnectProducer(producer);
    throw error;
  }
}

/** Disconnects it. No caller may be waiting for its records. */
export function disconnectProducer(producer: KafkaProducer): Promise<void> {
  return blockingCall(() => producer.disconnect());
}

/** Disconnects it once the running call ends: until then that would wait too, and hold another thread. */
export function discardProducer(
  { log }: Pick<Context, "log">,
  producer: KafkaProducer,
  call: Promise<unknown>,
): void {
  call
    .catch(() => {})
    .then(() => disconnectProducer(producer))
    .catch((error: Error) => log.warn({ err: error.message }, "a producer did not disconnect cleanly"));
}
