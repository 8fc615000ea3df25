/** Lets a limited number of works of each key run at a time; the others wait in their order. */
export interface Limiter {
  /** Waits for a place. Returns the function that gives it back. */
  enter(key: string): Promise<() => void>;
  /** Runs a work in a place. */
  run<T>(key: string, work: () => Promise<T>): Promise<T>;
}

interface Running {
  count: number;
  readonly waiting: (() => void)[];
}

/** Opens a limiter of `most` works at a time for each key, such as an org. Keys do not wait for each other. */
export function openLimiter(most: number): Limiter {
  const keys = new Map<string, Running>();
  const limiter: Limiter = {
    async enter(key) {
      const running = keys.get(key) ?? { count: 0, waiting: [] };
      keys.set(key, running);
      if (running.count < most) running.count++;
      else await new Promise<void>((resolve) => running.waiting.push(resolve));
      let left = false;
      return () => {
        if (left) return;
        left = true;
        // The next one takes over the place.
        const next = running.waiting.shift();
        if (next) next();
        else if (--running.count === 0) keys.delete(key);
      };
    },

    async run(key, work) {
      const leave = await limiter.enter(key);
      try {
        return await work();
      } finally {
        leave();
      }
    },
  };
  return limiter;
}
