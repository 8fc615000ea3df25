/** How a test file fared, and what part of the machine its host gave to others meanwhile. */
export interface Ran {
  readonly failed: boolean;
  /** From 0 to 1. */
  readonly stolen: number;
}

/** From here on a failure may be the host's: a quarter of the machine is missing. */
const MUCH = 0.25;
const MOST_RUNS = 2;

/**
 * Runs files again, one at a time, that failed while the host was seen to take much of the machine. A file that
 * failed on a machine that was its own has failed. Answers with those that passed in the end.
 */
export async function runAgain(
  files: ReadonlyMap<string, Ran>,
  { again, inTime }: { again: (file: string) => Promise<Ran>; inTime: () => boolean },
): Promise<string[]> {
  const passed: string[] = [];
  for (const [file, first] of files) {
    let last = first;
    for (let runs = 0; last.failed && last.stolen >= MUCH && runs < MOST_RUNS && inTime(); runs++)
      last = await again(file);
    if (!last.failed) passed.push(file);
  }
  return passed;
}
