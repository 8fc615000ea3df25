import { KhalaError } from "@khala/contracts";
import type { Caller } from "../../access/viewer.ts";
import type { Agent, ApprovalRule } from "../model/agent.ts";
import type { Task } from "../model/task.ts";

/** The rules under which a task has to be approved, of which all apply; none if it needs no approval. Throws what the agent's function throws. */
export function approvalRules({ options }: Agent, { artifacts }: Task): ApprovalRule[] {
  const { approval = false } = options;
  const answers =
    typeof approval === "function" ? artifacts.map((artifact) => approval(artifact)) : [approval];
  return answers.flatMap((answer) => (answer === true ? {} : answer || []));
}

/** Throws unless the rules let the caller decide. */
export async function checkDecider(
  { subject, scopes }: Caller,
  rules: readonly ApprovalRule[],
  requesters: () => Promise<ReadonlySet<string>>,
): Promise<void> {
  const missing = rules.find(({ scope }) => scope !== undefined && !scopes.has(scope))?.scope;
  if (missing !== undefined)
    throw new KhalaError(
      "missing_scope",
      `Deciding this approval needs the scope ${JSON.stringify(missing)}. Ask for a token whose oa_sync_scopes contain it.`,
    );
  if (rules.some(({ not }) => not === "requester") && (await requesters()).has(subject))
    throw new KhalaError(
      "subject_mismatch",
      "Somebody else has to decide this approval, because you made the request.",
    );
}
