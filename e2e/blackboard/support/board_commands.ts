import fc from "fast-check";

/** The agents of the world; the first two are strict. */
export const NAMES = ["ada", "bea", "cid"] as const;
export type Name = (typeof NAMES)[number];

export const PROCESSES = 3;
const KEYS = 3;

/** What an agent makes of an artifact: how often it fails first, and how it ends. */
export interface Fate {
  readonly failures: number;
  readonly ends: "done" | "dead";
}

/** An artifact with everything that is to come of it. Each agent that succeeds publishes the outputs. */
export interface Seed {
  readonly key: number;
  readonly fates: Readonly<Partial<Record<Name, Fate>>>;
  readonly outputs: readonly Seed[];
}

/** What may happen to the board. */
export type Command =
  | { readonly do: "publish"; readonly by: number; readonly seeds: readonly Seed[] }
  | { readonly do: "publish_again"; readonly by: number; readonly which: number }
  | { readonly do: "enqueue_again"; readonly by: number; readonly which: number }
  | { readonly do: "pause" | "resume"; readonly agent: Name }
  | { readonly do: "stop_work" | "start_work"; readonly by: number; readonly agent: Name }
  | { readonly do: "restart"; readonly by: number }
  | { readonly do: "breathe"; readonly turns: number };

const fate: fc.Arbitrary<Fate> = fc.record({
  failures: fc.oneof({ arbitrary: fc.constant(0), weight: 4 }, { arbitrary: fc.nat(3), weight: 2 }),
  ends: fc.oneof(
    { arbitrary: fc.constant("done" as const), weight: 7 },
    { arbitrary: fc.constant("dead" as const), weight: 1 },
  ),
});

function seed(depth: number): fc.Arbitrary<Seed> {
  return fc.record({
    key: fc.nat(KEYS - 1),
    fates: fc.record({ ada: fate, bea: fate, cid: fate }, { requiredKeys: [] }),
    outputs: depth === 0 ? fc.constant([]) : fc.array(seed(depth - 1), { maxLength: 2 }),
  });
}

const by = fc.nat(PROCESSES - 1);
const agent = fc.constantFrom(...NAMES);
const command: fc.Arbitrary<Command> = fc.oneof(
  {
    arbitrary: fc.record({
      do: fc.constant("publish" as const),
      by,
      seeds: fc.array(seed(2), { minLength: 1, maxLength: 4 }),
    }),
    weight: 6,
  },
  {
    arbitrary: fc.record({
      do: fc.constantFrom("publish_again" as const, "enqueue_again" as const),
      by,
      which: fc.nat(50),
    }),
    weight: 3,
  },
  {
    arbitrary: fc.record({ do: fc.constantFrom("pause" as const, "resume" as const), agent }),
    weight: 2,
  },
  {
    arbitrary: fc.record({ do: fc.constantFrom("stop_work" as const, "start_work" as const), by, agent }),
    weight: 3,
  },
  { arbitrary: fc.record({ do: fc.constant("restart" as const), by }), weight: 1 },
  {
    arbitrary: fc.record({ do: fc.constant("breathe" as const), turns: fc.integer({ min: 1, max: 5 }) }),
    weight: 4,
  },
);

/** Any history of a board. */
export const histories: fc.Arbitrary<Command[]> = fc.array(command, { minLength: 3, maxLength: 25 });
