import fc from "fast-check";

/** The seed of `npm test`, so that the same cases run every time. */
export const FIXED_SEED = 20260401;
/** A search tries this many times more histories than `npm test`; --minutes asks for more rounds of it. */
const SEARCH_FACTOR = 3;

export interface PropertyRuns<History> {
  /** Names the property where its seed is printed. */
  readonly name: string;
  readonly histories: fc.Arbitrary<History>;
  /** Runs a history, and throws when a promise is broken. The seed is for other random choices. */
  readonly check: (history: History, seed: number) => Promise<void>;
  /** Histories in `npm test`. */
  readonly runs: number;
  /** Whether to search with a random seed: `npm run test:chaos`. */
  readonly search?: boolean;
}

/**
 * Checks a property with a fixed seed and a bounded number of runs. A search prints its seed, that of KHALA_CHAOS_SEED if there
 * is one, and tries more; KHALA_CHAOS_SHRINK=1 also reduces a history that fails.
 */
export async function checkProperty<History>(property: PropertyRuns<History>): Promise<void> {
  const { name, histories, check, runs, search = false } = property;
  const { KHALA_CHAOS_SEED, KHALA_CHAOS_SHRINK } = process.env;
  const seed = search ? Number(KHALA_CHAOS_SEED ?? Date.now() % 2 ** 31) | 0 : FIXED_SEED;
  if (search) console.log(`${name}: repeat with --seed ${seed}`);
  const result = await fc.check(
    fc.asyncProperty(histories, (history) => check(history, seed)),
    {
      seed,
      numRuns: search ? runs * SEARCH_FACTOR : runs,
      endOnFailure: KHALA_CHAOS_SHRINK !== "1",
    },
  );
  if (!result.failed) return;
  const cause = result.errorInstance as Error | undefined;
  const history = JSON.stringify(result.counterexample?.[0]);
  throw new Error(`${cause?.message ?? "The property did not run."}\nSeed ${seed}, history ${history}`, {
    cause,
  });
}
