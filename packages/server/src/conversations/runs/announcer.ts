import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { RunEvents, RunEventType, RunIdentity } from "../options.ts";

const ATTEMPTS = 5;

/** Tells the authority log of runs, in the background and in order; what fails is tried again, and never harms the run. */
export class Announcer {
  readonly #context: Context;
  readonly #events: RunEvents;
  readonly #onEnd: (runId: string) => Promise<void>;
  readonly #last = new Map<string, Promise<void>>();

  /** `onEnd` is called when the authority log knows the end of a run; until then somebody has to tell it again. */
  constructor(context: Context, events: RunEvents, onEnd: (runId: string) => Promise<void>) {
    this.#context = context;
    this.#events = events;
    this.#onEnd = onEnd;
  }

  announce(run: RunIdentity, type: RunEventType, data: object): void {
    const { runId } = run;
    const before = this.#last.get(runId) ?? Promise.resolve();
    const told = before.then(() => this.#tell(run, type, data));
    this.#last.set(runId, told);
    void told.then(() => {
      if (this.#last.get(runId) === told) this.#last.delete(runId);
    });
  }

  /** Resolves when everything so far is told or given up. */
  async drain(): Promise<void> {
    await Promise.all(this.#last.values());
  }

  async #tell(run: RunIdentity, type: RunEventType, data: object): Promise<void> {
    const { clock, random, log } = this.#context;
    for (let attempt = 0; ; attempt++) {
      try {
        await this.#events.append(run, type, data);
        if (type !== "run.started") await this.#onEnd(run.runId);
        return;
      } catch (error) {
        const given = { err: (error as Error).message, run: run.runId, type };
        if (attempt + 1 >= ATTEMPTS) return log.error(given, "a run's event was given up");
        log.warn(given, "a run's event was not taken and is tried again");
        await sleep(clock, backoff(attempt, random, { base: 200, cap: 2_000 }));
      }
    }
  }
}
