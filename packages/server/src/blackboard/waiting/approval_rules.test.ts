import { testArtifact, testTask } from "@khala/test-support/kit/recording_board";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { AgentOptions } from "../model/agent.ts";
import { agent } from "../model/define_agent.ts";
import { approvalRules, checkDecider } from "./approval_rules.ts";

const task = testTask("payer", testArtifact("01890a5d-ac96-774b-bcce-b302099a8057"));
const rulesOf = (approval: AgentOptions["approval"]) =>
  approvalRules(agent("payer", { consumes: "Bill", ...(approval !== undefined && { approval }) }), task);

test.each([
  [undefined, []],
  [false, []],
  [true, [{}]],
  [{ not: "requester" }, [{ not: "requester" }]],
  [() => false, []],
  [() => true, [{}]],
  [() => ({ scope: "finance" }), [{ scope: "finance" }]],
] as [AgentOptions["approval"], object[]][])("reads the rules of approval %j", (approval, rules) => {
  expect(rulesOf(approval)).toEqual(rules);
});

const decide = (subject: string, scopes: string[], approval: AgentOptions["approval"]) =>
  checkDecider(testViewer({ subject, scopes }), rulesOf(approval), async () => new Set(["ada"]));

test("refuses the requester's own decision if the rule says so", async () => {
  await decide("ada", [], true);
  await decide("bob", [], { not: "requester" });
  await expect(decide("ada", [], { not: "requester" })).rejects.toMatchObject({
    code: "subject_mismatch",
    meaning: { status: 403 },
  });
});

test("requires the scope of the rule", async () => {
  const rule = { not: "requester", scope: "finance" } as const;
  await decide("bob", ["finance"], rule);
  await expect(decide("bob", ["blackboard:write"], rule)).rejects.toMatchObject({
    code: "missing_scope",
    message: expect.stringContaining('"finance"'),
  });
});
