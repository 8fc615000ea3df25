/** Runs at most `most` works at a time; the others wait in their order. */
export function limiter(most: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let running = 0;
  return async (work) => {
    if (running < most) running++;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      // The next one takes over the place.
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}
