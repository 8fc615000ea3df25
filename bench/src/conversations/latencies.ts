import { setTimeout } from "node:timers/promises";
import { percentile } from "../kit/stats.ts";

/** How long tokens took. */
export interface Latency {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

const DRAIN_MS = 20_000;

/** Collects how long each token took on its way. */
export class Latencies {
  #all: number[] = [];
  #failure: Error | undefined;

  add(ms: number): void {
    this.#all.push(ms);
  }

  fail(error: Error): void {
    this.#failure ??= error;
  }

  /** Waits until so many have come, and forgets them. */
  async take(expected: number): Promise<Latency> {
    const deadline = performance.now() + DRAIN_MS;
    while (this.#all.length < expected) {
      if (this.#failure) throw this.#failure;
      if (performance.now() > deadline) throw new Error(`${expected - this.#all.length} tokens are missing.`);
      await setTimeout(5);
    }
    if (this.#all.length > expected) throw new Error(`${this.#all.length - expected} tokens came twice.`);
    const all = this.#all.sort((a, b) => a - b);
    this.#all = [];
    return { p50: percentile(all, 0.5), p99: percentile(all, 0.99), max: all.at(-1)! };
  }
}
