import { KhalaError } from "@khala/contracts";
import type { JWTPayload } from "jose";
import { isReserved } from "../../access/access.ts";
import { isSameSubject, type Viewer } from "../../access/viewer.ts";
import { sha256 } from "../../kit/hash.ts";

/** Throws subject_mismatch unless a refreshed token names the subject and the org that opened the socket. */
export function requireSameSubject(current: Viewer, refreshed: Viewer): void {
  if (isSameSubject(current, refreshed)) return;
  throw new KhalaError(
    "subject_mismatch",
    "The new token has another subject or org than the one that opened this socket. Open a new socket with it.",
  );
}

/**
 * The rights that a cursor was read under, in 12 characters. The same for every token of a subject as long as its org, its
 * `oa_claims_version` and its topic scopes stay the same: expiry, jti, kid and the other scopes do not change what is seen.
 */
export function rightsFingerprint(viewer: Viewer): string {
  const topics = [...viewer.scopes].filter((scope) => !isReserved(scope)).sort();
  return sha256(JSON.stringify([viewer.org, viewer.subject, viewer.claimsVersion, topics])).slice(0, 12);
}

/** The longest token that is verified or minted. */
export const MAX_TOKEN_CHARS = 8_192;

/** An invalid_token denial. */
export function invalidToken(reason: string): KhalaError {
  return new KhalaError("invalid_token", `${reason} Get a new token and try again.`);
}

/** Whether a value can name a subject, an org or a token: text that Postgres stores as it is, and that logs cannot be forged with. */
export function isName(value: unknown): value is string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused.
  return typeof value === "string" && /^[^\u0000-\u001f\u007f]{1,256}$/u.test(value) && value.isWellFormed();
}

/** The viewer that a verified payload describes; throws invalid_token or missing_jti. */
export function readClaims(payload: JWTPayload, kid: string): Viewer {
  const { jti, exp, iat } = payload;
  if (jti === undefined) {
    throw new KhalaError(
      "missing_jti",
      "The token has no jti claim, so it could not be revoked. Get a token with a jti.",
    );
  }
  if (exp === undefined) throw invalidToken("The token has no exp claim.");
  return {
    subject: name(payload.sub, "sub"),
    org: name(payload.oa_org_id, "oa_org_id"),
    scopes: scopes(payload.oa_sync_scopes),
    claimsVersion: claimsVersion(payload.oa_claims_version),
    ...(iat !== undefined && { issuedAt: Math.floor(iat * 1000) }),
    expiresAt: Math.floor(exp * 1000),
    jti: name(jti, "jti"),
    kid,
  };
}

function name(value: unknown, claim: string): string {
  if (isName(value)) return value;
  throw invalidToken(
    `The token's ${claim} claim is missing, or is not a string of 1 to 256 printable characters.`,
  );
}

function scopes(value: unknown): ReadonlySet<string> {
  const list: unknown = typeof value === "string" ? value.split(" ") : value;
  if (!Array.isArray(list) || !list.every((scope) => typeof scope === "string")) {
    throw invalidToken("The token's oa_sync_scopes claim is missing, or is not a list of strings.");
  }
  return new Set(list.filter((scope) => scope !== ""));
}

// A token without a version is of version 0: an issuer that never changes rights in place needs no versions.
function claimsVersion(value: unknown): string {
  if (value === undefined) return "0";
  if (Number.isSafeInteger(value)) return String(value);
  if (isName(value)) return value;
  throw invalidToken("The token's oa_claims_version claim is neither a whole number nor a short string.");
}
