import fc from "fast-check";

/** What may happen to a conversation, its devices and its servers. A `pick` chooses one of what there is. */
export type HistoryCommand =
  | {
      readonly do: "send";
      readonly server: number;
      readonly words: readonly string[];
      readonly policy: Policy;
    }
  | { readonly do: "regenerate" | "edit" | "choose"; readonly server: number; readonly pick: number }
  | { readonly do: "decide"; readonly server: number; readonly pick: number; readonly approve: boolean }
  | { readonly do: "editQueued" | "cancelQueued"; readonly server: number; readonly pick: number }
  | { readonly do: "post"; readonly server: number; readonly pick: number }
  | { readonly do: "attach"; readonly device: number; readonly server: number; readonly fresh: boolean }
  | { readonly do: "kill" | "deploy" | "stop"; readonly server: number }
  | { readonly do: "release" | "rest" | "trim" | "lose" };

type Policy = "queue" | "interrupt" | "reject";

const server = fc.nat(1);
const pick = fc.nat(20);
const words = fc.uniqueArray(fc.constantFrom("work", "pay", "ask", "slow"), { maxLength: 3 });
const policy = fc.constantFrom<Policy>("queue", "queue", "interrupt", "reject");
const what = <T extends string>(...names: T[]) => fc.constantFrom(...names);

/** What may happen, what is common more often. */
export const histories: fc.Arbitrary<readonly HistoryCommand[]> = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: fc.record({ do: what("send"), server, words, policy }) },
    { weight: 6, arbitrary: fc.record({ do: what("regenerate", "edit", "choose"), server, pick }) },
    { weight: 7, arbitrary: fc.record({ do: what("decide"), server, pick, approve: fc.boolean() }) },
    {
      weight: 3,
      arbitrary: fc.record({ do: what("editQueued", "editQueued", "cancelQueued"), server, pick }),
    },
    { weight: 3, arbitrary: fc.record({ do: what("post"), server, pick }) },
    { weight: 4, arbitrary: fc.record({ do: what("attach"), device: pick, server, fresh: fc.boolean() }) },
    { weight: 3, arbitrary: fc.record({ do: what("kill", "kill", "deploy", "stop"), server }) },
    { weight: 4, arbitrary: fc.record({ do: what("release", "rest") }) },
    { weight: 3, arbitrary: fc.record({ do: what("trim", "lose") }) },
  ),
  { minLength: 15, maxLength: 35, size: "max" },
);
