import { expect, test } from "vitest";
import type { AgentOptions } from "./agent.ts";
import { agent } from "./define_agent.ts";

const messageOf = (make: () => unknown): string => {
  try {
    make();
  } catch (error) {
    if (error instanceof TypeError) return error.message;
    throw error;
  }
  throw new Error("was not refused");
};

test("an agent has the defaults that its options state", () => {
  const made = agent("reviewer", { consumes: "Draft" });
  expect(made).toMatchObject({
    name: "reviewer",
    consumes: ["Draft"],
    order: "key",
    strict: false,
    concurrency: 10,
    priority: 0,
    timeoutMs: 300_000,
    retry: { attempts: 5, base: 1_000, cap: 300_000 },
  });
  expect(made.retry).not.toHaveProperty("classify");
});

test("every option is kept", () => {
  const options: AgentOptions = {
    consumes: ["Draft", "Review"],
    where: () => true,
    tags: ["urgent"],
    from: ["agent:writer", "user:*"],
    labels: ["legal"],
    join: { by: "correlation_id", types: ["Draft", "Review"], within: 60_000 },
    concurrency: 3,
    key: ({ id }) => id,
    order: "partition",
    strict: true,
    rate: { limit: 10, per: 1_000 },
    retry: { attempts: 2, base: 10, cap: 20, classify: () => "fatal" },
    timeout: 5_000,
    priority: -1,
    selfTrigger: true,
    approval: () => true,
    run: async () => undefined,
  };
  const made = agent("merger", options);
  expect(made.options).toEqual(options);
  expect(made).toMatchObject({
    order: "partition",
    strict: true,
    concurrency: 3,
    priority: -1,
    timeoutMs: 5_000,
  });
  expect(made.retry).toEqual(options.retry);
});

test("an agent is immutable, also through the objects it was made of", () => {
  const consumes = ["Draft", "Review"];
  const join = { types: ["Draft", "Review"], within: 1_000 };
  const made = agent("merger", { consumes, join });
  consumes.push("Other");
  join.types.push("Other");
  join.within = 1;
  expect(made.consumes).toEqual(["Draft", "Review"]);
  expect(made.options.consumes).toEqual(["Draft", "Review"]);
  expect(made.options.join).toEqual({ types: ["Draft", "Review"], within: 1_000 });
  for (const part of [
    made,
    made.consumes,
    made.options,
    made.options.join,
    made.options.join?.types,
    made.retry,
  ])
    expect(Object.isFrozen(part)).toBe(true);
});

test.each(["", "1st", "a.b", "a b", "a/b", "a:b", "ä", "x".repeat(65), "router", 7, null])(
  "the name %j is refused with an example or a reason",
  (name) => {
    expect(messageOf(() => agent(name as string, { consumes: "Draft" }))).toMatch(
      /such as "reviewer"|another name/,
    );
  },
);

// biome-ignore format: one case is one line.
const cases: [string, object, RegExp][] = [
  ["no type", { consumes: [] }, /consumes must be a list/],
  ["nothing to consume", { consumes: undefined }, /consumes must be a list/],
  ["a type twice", { consumes: ["A", "A"] }, /consumes must be a list .* different/],
  ["a type that is none", { consumes: "my draft" }, /consumes must contain types of up to 128 letters/],
  ["a misspelt option", { timeOut: 5 }, /timeOut is not an option; the options are consumes, schemas, where/],
  ["a misspelt part of an option", { retry: { attempt: 3 } }, /retry\.attempt is not an option; the options are attempts/],
  ["where that is no function", { where: true }, /where must be a function, not true/],
  ["run that is no function", { run: "go" }, /run must be a function, not "go"/],
  ["batch and join", { batch: { size: 1, timeout: 1 }, join: {} }, /batch cannot be combined with join/],
  ["an empty batch", { batch: { size: 0, timeout: 1 } }, /batch\.size must be a whole number from 1 to 1000, not 0/],
  ["a batch without a timeout", { batch: { size: 2 } }, /batch\.timeout must be a number of milliseconds/],
  ["a join of a type not consumed", { join: { types: ["A", "B"], within: 1 } }, /has "B", which is not in consumes/],
  ["a join of one type", { join: { types: ["A"], within: 1 } }, /at least two/],
  ["a join by something else", { join: { by: "tags", types: ["A", "B"], within: 1 } }, /join\.by must be "correlation_id"/],
  ["no concurrency", { concurrency: 0 }, /concurrency must be a whole number/],
  ["half a task at a time", { concurrency: 0.5 }, /concurrency must be a whole number/],
  ["another order", { order: "time" }, /order must be "key", "partition" or "none"/],
  ["strict without an order", { order: "none", strict: true }, /strict needs an order/],
  ["a rate of nothing", { rate: { limit: 0, per: 1 } }, /rate\.limit/],
  ["a timeout beyond timers", { timeout: 2 ** 31 }, /timeout must be a number of milliseconds above 0/],
  ["a timeout of no time", { timeout: 0 }, /timeout must be a number of milliseconds above 0/],
  ["a cap below the base", { retry: { base: 10, cap: 5 } }, /retry\.cap must be at least retry\.base \(10\), not 5/],
  ["no attempts", { retry: { attempts: 0 } }, /retry\.attempts/],
  ["a priority that is no number", { priority: Number.NaN }, /priority must be a number/],
  ["a producer with a star in the middle", { from: ["agent:*x"] }, /from must name producers/],
  ["a producer without its kind", { from: ["writer"] }, /from must name producers/],
  ["approval that is a text", { approval: "yes" }, /approval must be true or false/],
  ["approval by nobody", { approval: { not: "me" } }, /approval.not must be "requester"/],
  ["approval with a scope that is none", { approval: { scope: "" } }, /approval.scope must be the name of a scope/],
  ["approval with an unknown rule", { approval: { by: "bob" } }, /approval.by is not an option/],
];

test.each(cases)("%s is refused, with the correct form", (_, options, message) => {
  const said = messageOf(() => agent("reviewer", { consumes: "A", ...options }));
  expect(said).toMatch(message);
  expect(said).toContain('Agent "reviewer"');
});
