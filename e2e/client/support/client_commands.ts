import fc from "fast-check";

/** Two tabs of one browser, and a client by itself. */
export const CLIENTS = 3;
const KEYS = 8;

/** What a storage does: as it should, or it fails to write, to read, to do anything, or has no room left. */
export type StorageFault = "none" | "commit" | "load" | "all" | "quota";

/** What may happen to clients and to what is between them and the server. */
export type Command =
  | { readonly do: "write" | "delete" | "write_large"; readonly key: number }
  | {
      readonly do:
        | "cut"
        | "refuse"
        | "stall"
        | "half_open"
        | "resume"
        | "trim"
        | "restart_server"
        | "breathe";
    }
  | { readonly do: "storage"; readonly fault: StorageFault }
  | { readonly do: "corrupt"; readonly which: number }
  | { readonly do: "reopen" | "kill" | "pause" | "connect"; readonly client: number }
  | { readonly do: "jump"; readonly hours: number };

/** A history, with or without a document that is never deleted: with one, no list may ever be empty again. */
export interface History {
  readonly anchored: boolean;
  readonly commands: readonly Command[];
}

type Weighted = { readonly arbitrary: fc.Arbitrary<Command>; readonly weight: number };

const key = fc.nat(KEYS - 1);
const client = fc.nat(CLIENTS - 1);
const just = <T extends Command>(weight: number, ...commands: readonly T[]): Weighted => ({
  arbitrary: fc.constantFrom(...commands),
  weight,
});
const line = (name: "cut" | "refuse" | "stall" | "half_open" | "resume"): Command => ({ do: name });
const fault = fc.constantFrom<StorageFault>("none", "none", "commit", "load", "all", "quota");

const command = fc.oneof<Weighted[]>(
  {
    arbitrary: fc.record({
      do: fc.constantFrom("write" as const, "write" as const, "write_large" as const, "delete" as const),
      key,
    }),
    weight: 8,
  },
  just(5, { do: "breathe" }),
  just(5, line("cut"), line("refuse"), line("stall"), line("half_open"), line("resume"), line("resume")),
  just(1, { do: "trim" }),
  just(1, { do: "restart_server" }),
  { arbitrary: fc.record({ do: fc.constant("storage" as const), fault }), weight: 3 },
  { arbitrary: fc.record({ do: fc.constant("corrupt" as const), which: fc.nat(20) }), weight: 2 },
  {
    arbitrary: fc.record({
      do: fc.constantFrom("reopen" as const, "kill" as const, "pause" as const, "connect" as const),
      client,
    }),
    weight: 5,
  },
  {
    arbitrary: fc.record({ do: fc.constant("jump" as const), hours: fc.integer({ min: -3, max: 3 }) }),
    weight: 1,
  },
);

/** Any history. */
export const histories: fc.Arbitrary<History> = fc.record({
  anchored: fc.boolean(),
  commands: fc.array(command, { minLength: 5, maxLength: 30 }),
});
