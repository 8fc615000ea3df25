import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { RunEvents, RunEventType, RunIdentity } from "../options.ts";

const MAX_ATTEMPTS = 5;

/** Appends run events to the authority log, in the background and in order. Failures are retried and never affect the run. */
export class RunReporter {
  readonly #context: Context;
  readonly #events: RunEvents;
  readonly #onEnd: (run: RunIdentity) => Promise<void>;
  readonly #last = new Map<string, Promise<void>>();

  /** `onEnd` is called once the end of a run is in the authority log. Until then a sweep reports it again. */
  constructor(context: Context, events: RunEvents, onEnd: (run: RunIdentity) => Promise<void>) {
    this.#context = context;
    this.#events = events;
    this.#onEnd = onEnd;
  }

  /** Queues an event behind the run's earlier ones. */
  report(run: RunIdentity, type: RunEventType, data: object): void {
    const { runId } = run;
    const previous = this.#last.get(runId) ?? Promise.resolve();
    const reported = previous.then(() => this.#append(run, type, data));
    this.#last.set(runId, reported);
    void reported.then(() => {
      if (this.#last.get(runId) === reported) this.#last.delete(runId);
    });
  }

  /** Resolves when every event so far is appended or abandoned. */
  async drain(): Promise<void> {
    await Promise.all(this.#last.values());
  }

  async #append(run: RunIdentity, type: RunEventType, data: object): Promise<void> {
    const { clock, random, log } = this.#context;
    for (let attempt = 0; ; attempt++) {
      try {
        await this.#events.append(run, type, data);
        if (type !== "run.started") await this.#onEnd(run);
        return;
      } catch (error) {
        const details = { err: (error as Error).message, run: run.runId, type };
        if (attempt + 1 >= MAX_ATTEMPTS)
          return log.error(details, "an event of a run could not be appended and was dropped");
        log.warn(details, "an event of a run could not be appended and is retried");
        await sleep(clock, backoff(attempt, random, { base: 200, cap: 2_000 }));
      }
    }
  }
}
