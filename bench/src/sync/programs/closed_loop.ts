/** How many writers, and for how long. */
export interface Load {
  readonly writers: number;
  readonly ms: number;
}

/** Writers that each start the next write when the one before is answered. Resolves with the rate per second. */
export async function closedLoop(
  { writers, ms }: Load,
  write: (writer: number) => Promise<void>,
): Promise<number> {
  const started = performance.now();
  const deadline = started + ms;
  let done = 0;
  const run = async (writer: number) => {
    while (performance.now() < deadline) {
      await write(writer);
      done++;
    }
  };
  await Promise.all(Array.from({ length: writers }, (_, writer) => run(writer)));
  return done / ((performance.now() - started) / 1_000);
}
