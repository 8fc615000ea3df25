import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../../server/src/kit/ids.ts";
import { ownedId } from "./witness.ts";

export interface WriterOptions {
  readonly org: string;
  readonly subject: string;
  readonly urls: () => readonly string[];
  readonly token: () => Promise<string>;
  readonly random: Random;
  /** The number of runs it appends to. */
  readonly runs: number;
  /** The time it waits for an answer. */
  readonly timeoutMs?: number;
}

interface NewEvent {
  readonly type: string;
  readonly data?: object;
}

/** Appends to runs over HTTP, to any gateway, and retries with the same event ids until the append is acknowledged. */
export class Writer {
  readonly #options: WriterOptions;
  readonly #steps = new Map<string, number>();
  #stopping = false;
  #abandoned = false;
  #running: Promise<void> = Promise.resolve();
  /** The number of repeated requests. */
  retries = 0;
  /** The number of those that were not answered with a 503 and a delay. */
  readonly failures: string[] = [];

  constructor(options: WriterOptions) {
    this.#options = options;
  }

  /** The acknowledged steps of each run, by the document's key. */
  get steps(): ReadonlyMap<string, number> {
    return this.#steps;
  }

  /** Forgets acknowledged steps: a restored backup does not have them. */
  forget(): void {
    this.#steps.clear();
  }

  get total(): number {
    return [...this.#steps.values()].reduce((sum, steps) => sum + steps, 0);
  }

  /** Appends one step after another until `stop`, and sometimes changes who may see a run. */
  start(): this {
    const { random } = this.#options;
    this.#stopping = false;
    this.#running = (async () => {
      while (!this.#stopping) {
        await this.step(1 + Math.floor(random() * 3));
        if (random() < 0.1) await this.#share();
      }
    })();
    return this;
  }

  /** Stops without waiting for an answer. */
  abandon(): void {
    this.#abandoned = this.#stopping = true;
  }

  /** Resolves when the request under way is acknowledged. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#running;
  }

  /** Makes one of its runs private, or public again. */
  async #share(): Promise<void> {
    const { subject, random } = this.#options;
    const audience = random() < 0.5 ? [subject] : [];
    await this.append("/runtime/v1/runs", this.#id(this.#anyRun()), [
      { type: "run.shared", data: { audience } },
    ]);
  }

  #anyRun(): number {
    return Math.floor(this.#options.random() * this.#options.runs);
  }

  #id(run: number): string {
    return ownedId(this.#options.org, this.#options.subject, `r${run}`);
  }

  /** Appends steps to one of its runs. */
  async step(count = 1, run = this.#anyRun()): Promise<void> {
    const id = this.#id(run);
    const events = Array.from({ length: count }, (_, i) => ({ type: "run.step", data: { name: `s${i}` } }));
    await this.append("/runtime/v1/runs", id, events);
    this.#steps.set(`run:${id}`, (this.#steps.get(`run:${id}`) ?? 0) + count);
  }

  /** Makes runs that are large on the wire. */
  async grow(count: number): Promise<void> {
    const { org, subject, runs } = this.#options;
    const events = [{ type: "run.started", data: { title: "x".repeat(100_000) } }];
    const ids = Array.from({ length: count }, (_, i) => ownedId(org, subject, `large${i % runs}`));
    for (const id of ids) await this.append("/runtime/v1/runs", id, events);
  }

  /** Appends events, with retries. Throws when they are refused for good. */
  async append(path: string, id: string, events: readonly NewEvent[]): Promise<void> {
    const { urls, token, random, timeoutMs = 2_000 } = this.#options;
    const body = JSON.stringify({ events: events.map((event) => ({ event_id: randomUUID(), ...event })) });
    const deadline = Date.now() + 60_000;
    for (let why = ""; ; this.retries++) {
      if (Date.now() > deadline) throw new Error(`${id} could not be appended to in 60 s: ${why}`);
      if (this.#abandoned) return;
      const all = urls();
      const url = all[Math.floor(random() * all.length)]!;
      try {
        const response = await fetch(`${url}${path}/${id}/events`, {
          method: "POST",
          headers: { "content-type": "application/json", authorization: `Bearer ${await token()}` },
          body,
          signal: AbortSignal.timeout(timeoutMs),
        });
        const text = await response.text();
        if (response.status === 201) return;
        if (response.status < 500) throw new RefusedError(`${id}: ${response.status} ${text}`);
        why = `${response.status} ${text}`;
        if (response.status !== 503 || !text.includes("retry_after_ms")) this.failures.push(why);
      } catch (error) {
        if (error instanceof RefusedError) throw error;
        why = (error as Error).message;
        this.failures.push(why);
      }
      await delay(20 + random() * 60);
    }
  }
}

class RefusedError extends Error {}
