/** Somebody who asks for something: a subject of an org, with the scopes of its token. */
export interface Caller {
  readonly subject: string;
  readonly org: string;
  readonly scopes: ReadonlySet<string>;
}

/** The caller, as a verified token names it. */
export interface Viewer extends Caller {
  /** `oa_claims_version`; "0" when the token has none. Raising it makes every cursor of the subject stale. */
  readonly claimsVersion: string;
  /** The token's `iat`, in milliseconds; undefined when it has none. */
  readonly issuedAt?: number;
  /** The token's `exp`, in milliseconds. The verifier accepts the token for the clock skew longer. */
  readonly expiresAt: number;
  readonly jti: string;
  readonly kid: string;
}

/** Whether two tokens name the same subject of the same org. */
export function isSameSubject(one: Caller, other: Caller): boolean {
  return one.org === other.org && one.subject === other.subject;
}
