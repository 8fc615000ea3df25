/** Runs a work of a key once fewer than the limit of that key are running; the others wait in their order. */
export type Limiter = <T>(key: string, work: () => Promise<T>) => Promise<T>;

interface Running {
  count: number;
  readonly waiting: (() => void)[];
}

/** Opens a limiter of `most` works at a time for each key, such as an org. Keys do not wait for each other. */
export function openLimiter(most: number): Limiter {
  const keys = new Map<string, Running>();
  return async (key, work) => {
    const running = keys.get(key) ?? { count: 0, waiting: [] };
    keys.set(key, running);
    if (running.count < most) running.count++;
    else await new Promise<void>((resolve) => running.waiting.push(resolve));
    try {
      return await work();
    } finally {
      // The next one takes over the place.
      const next = running.waiting.shift();
      if (next) next();
      else if (--running.count === 0) keys.delete(key);
    }
  };
}
