import type { Audit } from "../../../server/src/access/audit.ts";
import type { Viewer } from "../../../server/src/access/viewer.ts";

/** A caller with every scope that `scopes` names, of org `acme` unless said otherwise. */
export function testViewer(
  changes: Partial<Omit<Viewer, "scopes">> & { scopes?: readonly string[] } = {},
): Viewer {
  const { scopes = ["chat", "runtime:write", "blackboard:read", "blackboard:write"], ...rest } = changes;
  return {
    subject: "ada",
    org: "acme",
    claimsVersion: "0",
    expiresAt: Number.MAX_SAFE_INTEGER,
    jti: "jti-1",
    kid: "kid-1",
    scopes: new Set(scopes),
    ...rest,
  };
}

/** An audit log that keeps nothing. */
export const noAudit: Audit = { around: (what, work) => work(what), read: async () => [] };
