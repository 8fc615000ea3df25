import { KhalaError, SCOPES } from "@khala/contracts";
import type { Caller } from "./viewer.ts";

/** The people who may decide an approval, beside the scope for decisions. */
export interface ApprovalRule {
  /** Nobody who published the artifact, or into the correlation in which an agent published it. */
  readonly not?: "requester";
  /** A scope that the token must have. */
  readonly scope?: string;
}

/** Throws unless the rules let the caller decide. If the requesters cannot be found, only an operator may. */
export async function checkDecider(
  { subject, scopes }: Caller,
  rules: readonly ApprovalRule[],
  findRequesters: () => Promise<ReadonlySet<string> | undefined>,
): Promise<void> {
  const missing = rules.find(({ scope }) => scope !== undefined && !scopes.has(scope))?.scope;
  if (missing !== undefined)
    throw new KhalaError(
      "missing_scope",
      `Deciding this approval needs the scope ${JSON.stringify(missing)}. Ask for a token whose oa_sync_scopes contain it.`,
    );
  if (!rules.some(({ not }) => not === "requester")) return;
  const requesters = await findRequesters();
  if (requesters?.has(subject))
    throw new KhalaError(
      "subject_mismatch",
      "You made the request, so somebody else must decide this approval.",
    );
  if (!requesters && !scopes.has(SCOPES.ops))
    throw new KhalaError(
      "missing_scope",
      `The correlation is too long to find everybody who made this request. Deciding this approval needs the scope "${SCOPES.ops}".`,
    );
}
