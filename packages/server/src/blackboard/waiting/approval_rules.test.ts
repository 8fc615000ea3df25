import { testArtifact, testTask } from "@khala/test-support/kit/recording_board";
import { expect, test } from "vitest";
import type { AgentOptions } from "../model/agent.ts";
import { agent } from "../model/define_agent.ts";
import { approvalRules } from "./approval_rules.ts";

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
