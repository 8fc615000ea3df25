/** Runs `make` for each number below `count`, so many at a time, and returns the results in order. */
export async function pooled<T>(
  count: number,
  atOnce: number,
  make: (n: number) => Promise<T>,
): Promise<T[]> {
  const results = new Array<T>(count);
  let next = 0;
  const run = async () => {
    while (next < count) {
      const n = next++;
      results[n] = await make(n);
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, count) }, run));
  return results;
}
