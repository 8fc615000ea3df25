import { setTimeout as delay } from "node:timers/promises";

/** Something that notifies its listeners of changes. */
export interface Changing {
  /** Calls `listener` at every change until the returned function is called. */
  onChange(listener: () => void): () => void;
}

export interface UntilOptions {
  /** Checks again whenever this changes. Without it the condition is polled, as for a database or another process. */
  readonly on?: Changing;
  readonly deadlineMs?: number;
}

/** Waits until the condition returns a value, and returns that. Throws at the deadline; `what` names the condition. */
export async function until<T>(
  what: string,
  condition: () => T | Promise<T>,
  { on, deadlineMs = 30_000 }: UntilOptions = {},
): Promise<Exclude<T, undefined | null | false | 0 | "">> {
  const deadline = AbortSignal.timeout(deadlineMs);
  for (;;) {
    const changed = on && nextChange(on, deadline);
    const value = await condition();
    if (value) return value as Exclude<T, undefined | null | false | 0 | "">;
    if (deadline.aborted) throw new Error(`Not within ${deadlineMs} ms: ${what}.`);
    await (changed ?? delay(10));
  }
}

function nextChange(on: Changing, deadline: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      stop();
      deadline.removeEventListener("abort", done);
      resolve();
    };
    const stop = on.onChange(done);
    deadline.addEventListener("abort", done, { once: true });
  });
}

/** A set of listeners, for a class that implements Changing. */
export class Changes implements Changing {
  readonly #listeners = new Set<() => void>();

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Notifies all listeners. */
  changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
