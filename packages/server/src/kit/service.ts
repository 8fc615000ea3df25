import { backoff } from "./backoff.ts";
import { sleep } from "./clock.ts";
import type { Context } from "./context.ts";

/** Something that runs until it is stopped. */
export interface Service {
  stop(): Promise<void>;
}

/** Wakes a loop that is waiting; wakes that come meanwhile count as one. */
export class Wake {
  #resolve: (() => void) | undefined;
  #pending = false;

  wake(): void {
    this.#pending = true;
    this.#resolve?.();
  }

  /** Resolves at the next wake, after `ms`, or when the signal aborts. */
  async wait(context: Pick<Context, "clock">, ms: number, signal: AbortSignal): Promise<void> {
    if (!this.#pending && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const done = () => {
          cancel();
          signal.removeEventListener("abort", done);
          this.#resolve = undefined;
          resolve();
        };
        const cancel = context.clock.after(ms, done);
        signal.addEventListener("abort", done, { once: true });
        this.#resolve = done;
      });
    }
    this.#pending = false;
  }
}

/**
 * Runs `step` over and over: again at once while it says there is more, else after a wake or `idleMs`.
 * A step that throws is reported, and tried again with backoff. `stop` waits for the step under way.
 */
export function runLoop(
  context: Context,
  name: string,
  options: {
    step: (signal: AbortSignal) => Promise<boolean>;
    wake: Wake;
    idleMs: number;
    onError?: (error: unknown) => void;
  },
): Service {
  const stopping = new AbortController();
  const { signal } = stopping;
  const running = (async () => {
    for (let failures = 0; !signal.aborted; ) {
      try {
        const more = await options.step(signal);
        failures = 0;
        if (!more) await options.wake.wait(context, options.idleMs, signal);
      } catch (error) {
        if (signal.aborted) break;
        options.onError?.(error);
        context.log.warn(
          { err: (error as Error).message, service: name, failures },
          "a step failed and will be tried again",
        );
        await sleep(context.clock, backoff(failures++, context.random, { base: 50, cap: 2_000 }), signal);
      }
    }
  })();
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };
}
