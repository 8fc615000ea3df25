import { artifactKey } from "@khala/contracts";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { AgentOptions } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import { agent } from "../model/define_agent.ts";
import { createRouter, matches, taskId } from "./matching.ts";

const clock = new ManualClock();
const DRAFT: Artifact = {
  id: "01890a5d-ac96-774b-bcce-b302099a8057",
  type: "Draft",
  payload: { words: 3 },
  tags: ["urgent", "de"],
  produced_by: "agent:writer",
  visibility: { kind: "org" },
  version: 1,
  created_at: "2026-01-01T00:00:00.000Z",
  org_id: "org-1",
  depth: 0,
};

const matching = (options: Partial<AgentOptions>, artifact: Partial<Artifact> = {}) =>
  matches(agent("reviewer", { consumes: "Draft", ...options }), { ...DRAFT, ...artifact });

test("gives an agent the types that it consumes, and no others", () => {
  expect(matching({})).toBe(true);
  expect(matching({ consumes: ["Other", "Draft"] })).toBe(true);
  expect(matching({ consumes: "Other" })).toBe(false);
  expect(matching({ consumes: "draft" })).toBe(false);
});

test("requires all of the agent's tags", () => {
  expect(matching({ tags: ["de"] })).toBe(true);
  expect(matching({ tags: ["de", "urgent"] })).toBe(true);
  expect(matching({ tags: ["de", "late"] })).toBe(false);
});

test("matches producers by name, or by prefix", () => {
  expect(matching({ from: ["agent:writer"] })).toBe(true);
  expect(matching({ from: ["user:*", "agent:*"] })).toBe(true);
  expect(matching({ from: ["user:*", "agent:writ"] })).toBe(false);
});

test("gives a labelled artifact to agents that have all of its labels", () => {
  const visibility = { kind: "labelled", labels: ["legal", "hr"] };
  expect(matching({ labels: ["hr", "legal", "it"] }, { visibility })).toBe(true);
  expect(matching({ labels: ["legal"] }, { visibility })).toBe(false);
  expect(matching({}, { visibility })).toBe(false);
});

test.each([{ kind: "labelled" }, { kind: "labelled", labels: [] }])(
  "gives a labelled artifact without a label to no agent: %j",
  (visibility) => {
    expect(matching({}, { visibility })).toBe(false);
    expect(matching({ labels: ["legal"] }, { visibility })).toBe(false);
  },
);

test("gives a private artifact to the agents that it names", () => {
  expect(matching({}, { visibility: { kind: "private", agents: ["other", "reviewer"] } })).toBe(true);
  expect(matching({}, { visibility: { kind: "private", agents: ["other"] } })).toBe(false);
});

test("gives an artifact of unknown visibility to no agent", () => {
  expect(matching({}, { visibility: { kind: "public" } })).toBe(true);
  expect(matching({}, { visibility: { kind: "secret" } })).toBe(false);
});

test("does not trigger an agent by its own output, unless selfTrigger is set", () => {
  expect(matching({}, { produced_by: "agent:reviewer" })).toBe(false);
  expect(matching({ selfTrigger: true }, { produced_by: "agent:reviewer" })).toBe(true);
  expect(matching({}, { produced_by: "user:reviewer" })).toBe(true);
});

test("applies where last, to the artifact", () => {
  expect(matching({ where: ({ payload }) => (payload as { words: number }).words > 2 })).toBe(true);
  expect(matching({ where: ({ payload }) => (payload as { words: number }).words > 3 })).toBe(false);
});

test("makes one task for each matching agent, with its own id and key", () => {
  const route = createRouter(
    [
      agent("a", { consumes: "Draft" }),
      agent("b", { consumes: "Review" }),
      agent("c", { consumes: "Draft", key: () => "k" }),
    ],
    { clock },
  );
  const { tasks, dead } = route(DRAFT);
  const created_at = "2026-01-01T00:00:00.000Z";
  expect(tasks).toEqual([
    { id: DRAFT.id, agent: "a", artifacts: [DRAFT], key: artifactKey(DRAFT), attempt: 1, created_at },
    { id: DRAFT.id, agent: "c", artifacts: [DRAFT], key: "k", attempt: 1, created_at },
  ]);
  expect(dead).toEqual([]);
});

test("makes another task for a later version, always with the same id", () => {
  expect(taskId(DRAFT)).toBe(DRAFT.id);
  const second = taskId({ ...DRAFT, version: 2 });
  expect(second).not.toBe(DRAFT.id);
  expect(second.slice(0, 13)).toBe(DRAFT.id.slice(0, 13));
  expect(taskId({ ...DRAFT, version: 2 })).toBe(second);
  expect(taskId({ ...DRAFT, version: 3 })).not.toBe(second);
});

test("treats an empty key as no key", () => {
  const route = createRouter([agent("a", { consumes: "Draft", key: () => "" })], { clock });
  expect(route(DRAFT).tasks[0]?.key).toBe(artifactKey(DRAFT));
});

const throwing: [string, Partial<AgentOptions>, string][] = [
  ["a predicate that throws", { where: () => JSON.parse("{") }, "SyntaxError"],
  ["a predicate that answers later", { where: (async () => false) as never }, "TypeError"],
  ["a predicate that answers nothing", { where: (() => undefined) as never }, "TypeError"],
  ["a key that throws", { key: () => JSON.parse("{") }, "SyntaxError"],
  ["a key that is a number", { key: (() => 7) as never }, "TypeError"],
  ["a key that no table can hold", { key: () => "a\0b" }, "TypeError"],
  ["a key without end", { key: () => "x".repeat(10_000) }, "TypeError"],
];

test.each(throwing)("%s makes a dead letter of that agent, and tasks for the others", (_, options, name) => {
  const agents = [agent("bad", { consumes: "Draft", ...options }), agent("good", { consumes: "Draft" })];
  const route = createRouter(agents, { clock });
  const { tasks, dead } = route(DRAFT);
  expect(tasks.map((task) => task.agent)).toEqual(["good"]);
  expect(dead).toMatchObject([
    {
      agent: "bad",
      attempts: 0,
      failure: { class: name, kind: "fatal" },
      task: { id: DRAFT.id, agent: "bad" },
    },
  ]);
  expect(route(DRAFT).dead[0]?.id).toBe(dead[0]?.id);
});

test("refuses two agents of one name", () => {
  const twins = [agent("a", { consumes: "Draft" }), agent("a", { consumes: "Review" })];
  expect(() => createRouter(twins, { clock })).toThrow('Two agents have the name "a"');
});

test("routing never throws, for any artifact and any error", () => {
  const hostile = fc.anything({ withNullPrototype: true, withBigInt: true, withDate: true });
  const part = fc.option(hostile, { nil: undefined });
  const artifact = fc.oneof(
    hostile,
    fc.record({
      id: fc.oneof(fc.uuid(), hostile),
      type: fc.constant("Draft"),
      payload: hostile,
      tags: part,
      produced_by: part,
      visibility: fc.oneof(
        part,
        fc.record({ kind: fc.constantFrom("labelled", "private"), labels: part, agents: part }),
      ),
      version: part,
      partition_key: part,
    }),
  );
  fc.assert(
    fc.property(artifact, hostile, (value, thrown) => {
      const agents = [
        agent("plain", { consumes: "Draft", tags: ["a"], from: ["user:*"] }),
        agent("all", { consumes: "Draft" }),
        agent("throws", {
          consumes: "Draft",
          where: () => {
            throw thrown;
          },
        }),
        agent("keyed", { consumes: "Draft", key: ({ partition_key }) => partition_key as string }),
      ];
      const { tasks, dead } = createRouter(agents, { clock })(value as Artifact);
      expect(tasks.length + dead.length).toBeLessThanOrEqual(4);
    }),
  );
});

test("does not evaluate agents of other types", () => {
  let looked = 0;
  const where = () => {
    looked++;
    return true;
  };
  const agents = Array.from({ length: 500 }, (_, index) =>
    agent(`a${index}`, { consumes: `Type${index}`, where }),
  );
  const { tasks } = createRouter(agents, { clock })({ ...DRAFT, type: "Type7" });
  expect(tasks.map((task) => task.agent)).toEqual(["a7"]);
  expect(looked).toBe(1);
});
