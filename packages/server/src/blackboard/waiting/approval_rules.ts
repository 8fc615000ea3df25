import type { ApprovalRule } from "../../access/decider.ts";
import type { Agent } from "../model/agent.ts";
import type { Task } from "../model/task.ts";

/** The rules under which a task has to be approved, of which all apply; none if it needs no approval. Throws what the agent's function throws. */
export function approvalRules({ options }: Agent, { artifacts }: Task): ApprovalRule[] {
  const { approval = false } = options;
  const answers =
    typeof approval === "function" ? artifacts.map((artifact) => approval(artifact)) : [approval];
  return answers.flatMap((answer) => (answer === true ? {} : answer || []));
}
