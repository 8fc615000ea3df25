import { KhalaError, SCOPES } from "@khala/contracts";
import { sha256 } from "../../kit/hash.ts";

/** Who is asking, as a verified token says it. */
export interface Viewer {
  readonly subject: string;
  readonly org: string;
  readonly scopes: ReadonlySet<string>;
  /** `oa_claims_version`; "0" when the token has none. Raising it makes every cursor of the subject stale. */
  readonly claimsVersion: string;
  /** The token's `exp`, in milliseconds. The verifier accepts the token for the clock skew longer. */
  readonly expiresAt: number;
  readonly jti: string;
  readonly kid: string;
}

const reserved: ReadonlySet<string> = new Set(Object.values(SCOPES));

/** Whether the viewer's token carries the scope. */
export function hasScope(viewer: Viewer, scope: string): boolean {
  return viewer.scopes.has(scope);
}

/** Throws missing_scope unless the viewer's token carries the scope. */
export function requireScope(viewer: Viewer, scope: string): void {
  if (hasScope(viewer, scope)) return;
  throw new KhalaError(
    "missing_scope",
    `This needs the scope ${quote(scope)}. Ask for a token whose oa_sync_scopes contain it.`,
  );
}

/** Throws forbidden_topic unless the viewer's token allows the topic. */
export function requireTopic(viewer: Viewer, topic: string): void {
  // A scope such as "ops" is a right, never the name of a topic.
  if (hasScope(viewer, topic) && !reserved.has(topic)) return;
  throw new KhalaError(
    "forbidden_topic",
    `The token does not allow the topic ${quote(topic)}. Ask for a token whose oa_sync_scopes contain it.`,
  );
}

/** Throws subject_mismatch unless a refreshed token names the subject and the org that opened the socket. */
export function requireSameSubject(current: Viewer, refreshed: Viewer): void {
  if (current.subject === refreshed.subject && current.org === refreshed.org) return;
  throw new KhalaError(
    "subject_mismatch",
    "The new token names another subject or org than the one that opened this socket. Open a new socket with it.",
  );
}

/**
 * The rights that a cursor was read under, in 12 characters. The same for every token of a subject as long as its org, its
 * `oa_claims_version` and its topic scopes stay the same: expiry, jti, kid and the other scopes do not change what is seen.
 */
export function rightsFingerprint(viewer: Viewer): string {
  const topics = [...viewer.scopes].filter((scope) => !reserved.has(scope)).sort();
  return sha256(JSON.stringify([viewer.org, viewer.subject, viewer.claimsVersion, topics])).slice(0, 12);
}

// Names come from the client: quoted, so that they cannot pose as our own words, and cut.
function quote(name: string): string {
  return JSON.stringify(name.length > 100 ? `${name.slice(0, 100)}…` : name);
}
