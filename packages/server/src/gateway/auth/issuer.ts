import { KhalaError } from "@khala/contracts";
import { SignJWT } from "jose";
import { ISSUER } from "../../access/actions.ts";
import type { Clock } from "../../kit/clock.ts";
import type { NewId } from "../../kit/ids.ts";
import { isName, MAX_TOKEN_CHARS } from "./claims.ts";
import { secretKey } from "./keys/algorithms.ts";

/** How tokens are issued. */
export interface IssuerOptions {
  /** The name of the key that they are signed with. */
  readonly kid: string;
  readonly secret: Uint8Array | string;
  readonly clock: Clock;
  readonly newId: NewId;
  readonly issuer?: string | undefined;
  readonly audience?: string | undefined;
  readonly minTtlS?: number | undefined;
  readonly maxTtlS?: number | undefined;
}

/** The claims of a token to mint. */
export interface MintRequest {
  readonly sub: string;
  readonly org_id: string;
  readonly scopes: readonly string[];
  readonly ttl_s?: number | undefined;
  readonly claims_version?: string | number | undefined;
}

/** A new token. */
export interface MintedToken {
  readonly token: string;
  /** RFC 3339. */
  readonly expires_at: string;
  readonly kid: string;
}

/** Makes tokens. */
export interface Issuer {
  /** Mints a token; throws invalid_request with the field that is wrong. */
  mint(request: MintRequest): Promise<MintedToken>;
}

/** Issues tokens that `createVerifier` accepts. */
export function createIssuer(options: IssuerOptions): Issuer {
  const { kid, secret, clock, newId, issuer, audience } = options;
  const { minTtlS = 60, maxTtlS = 900 } = options;
  const defaultTtlS = Math.min(Math.max(300, minTtlS), maxTtlS);
  const { alg, key } = secretKey(kid, secret);

  return {
    async mint({ sub, org_id, scopes, ttl_s = defaultTtlS, claims_version = 0 }) {
      if (!isName(sub)) throw bad("sub", "sub must be a string of 1 to 256 printable characters.");
      if (!isName(org_id)) throw bad("org_id", "org_id must be a string of 1 to 256 printable characters.");
      if (!Array.isArray(scopes) || !scopes.every(isScope)) {
        throw bad("scopes", "scopes must be a list of names without spaces, such as runtime.run_summaries.");
      }
      if (!Number.isInteger(ttl_s) || ttl_s < minTtlS || ttl_s > maxTtlS) {
        throw bad("ttl_s", `ttl_s must be a whole number of seconds from ${minTtlS} to ${maxTtlS}.`);
      }
      if (!Number.isSafeInteger(claims_version) && !isName(claims_version)) {
        throw bad("claims_version", "claims_version must be a whole number or a short string.");
      }
      const iat = Math.floor(clock.now() / 1000);
      const exp = iat + ttl_s;
      const token = await new SignJWT({
        sub,
        oa_org_id: org_id,
        oa_sync_scopes: [...new Set(scopes)],
        oa_claims_version: claims_version,
        jti: newId(),
        iat,
        exp,
        ...(issuer === undefined ? {} : { iss: issuer }),
        ...(audience === undefined ? {} : { aud: audience }),
      })
        .setProtectedHeader({ alg, kid, typ: "JWT" })
        .sign(key);
      if (token.length > MAX_TOKEN_CHARS) {
        throw bad(
          "scopes",
          `The token would be longer than ${MAX_TOKEN_CHARS} characters. Ask for fewer scopes.`,
        );
      }
      return { token, expires_at: new Date(exp * 1000).toISOString(), kid };
    },
  };
}

function isScope(value: unknown): value is string {
  return isName(value) && !/\s/.test(value) && value !== ISSUER;
}

function bad(field: string, message: string): KhalaError {
  return new KhalaError("invalid_request", message, { field });
}
