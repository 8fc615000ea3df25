import { KhalaError } from "@khala/contracts";
import type { Caller } from "./viewer.ts";

/** The people who may decide an approval, beside the scope for decisions. */
export interface ApprovalRule {
  /** Not the person who published the artifact, or who started the correlation in which an agent published it. */
  readonly not?: "requester";
  /** A scope that the token must have. */
  readonly scope?: string;
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
      "You made the request, so somebody else must decide this approval.",
    );
}
