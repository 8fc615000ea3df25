import fc from "fast-check";

/** Something that happens to a world of servers and witnesses. Numbers choose: they are taken modulo what there is. */
export type Command =
  | { do: "append"; stream: number; event: number; audience: readonly string[]; large: boolean }
  | { do: "connect" | "disconnect" | "drop"; witness: number }
  | { do: "claims"; witness: number }
  | { do: "purge" | "fix"; topic: number }
  | { do: "restart"; server: number; mode: "inline" | "pointer" }
  | { do: "cut"; what: "listening" | "all" }
  | { do: "epoch" }
  | { do: "settle" };

/** The subjects that documents are shared with; some of them watch. */
export const SUBJECTS = ["ann", "bob", "cyd"] as const;

const choice = fc.nat({ max: 999 });
const audience = fc.oneof(
  { weight: 2, arbitrary: fc.constant<string[]>([]) },
  { weight: 3, arbitrary: fc.uniqueArray(fc.constantFrom<string>(...SUBJECTS), { maxLength: 2 }) },
);

const command: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 24,
    arbitrary: fc.record({
      do: fc.constant("append" as const),
      stream: choice,
      event: choice,
      audience,
      large: fc.boolean(),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constantFrom("connect" as const, "disconnect" as const, "drop" as const),
      witness: choice,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("claims" as const), witness: choice }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom("purge" as const, "purge" as const, "fix" as const),
      topic: choice,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("restart" as const),
      server: choice,
      mode: fc.constantFrom("inline" as const, "pointer" as const),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("cut" as const),
      what: fc.constantFrom("listening" as const, "all" as const),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("epoch" as const) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("settle" as const) }) },
);

/** A history: how many servers there are, and what happens. */
export interface History {
  readonly servers: number;
  readonly commands: readonly Command[];
}

/** Histories of some 40 commands. */
export const histories: fc.Arbitrary<History> = fc.record({
  servers: fc.integer({ min: 1, max: 3 }),
  commands: fc.array(command, { minLength: 20, maxLength: 40, size: "max" }),
});
