import { backoff } from "./backoff.ts";
import { sleep } from "./clock.ts";
import type { Context } from "./context.ts";

/** Something that runs until it is stopped. */
export interface Service {
  stop(): Promise<void>;
}

/** Wakes a waiting loop. Wakes that arrive while the loop is busy are coalesced into one. */
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
 * Runs `step` in a loop: again at once while it returns true, otherwise after a wake or `idleMs`.
 * A step that throws is logged and retried with backoff. `stop` waits for the current step.
 */
export function runLoop(
  context: Context,
  name: string,
  options: {
    step: (signal: AbortSignal) => Promise<boolean>;
    wake: Wake;
    /** Read before each pause: it may be a getter. */
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
          "a step failed and is retried",
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
