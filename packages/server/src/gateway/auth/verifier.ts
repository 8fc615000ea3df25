import { KhalaError } from "@khala/contracts";
import {
  decodeProtectedHeader,
  errors,
  type JWTPayload,
  jwtVerify,
  type ProtectedHeaderParameters,
} from "jose";
import type { Viewer } from "../../access/viewer.ts";
import type { Clock } from "../../kit/clock.ts";
import { sha256 } from "../../kit/hash.ts";
import { invalidToken, MAX_TOKEN_CHARS, readClaims } from "./claims.ts";
import type { PinnedKey } from "./keys/algorithms.ts";
import type { Keyring } from "./keys/keys.ts";
import { type Revocations, tokenRevoked } from "./revocations.ts";

/** How tokens are verified. */
export interface VerifierOptions {
  readonly keys: Keyring;
  readonly revocations: Revocations;
  readonly clock: Clock;
  /** The `iss` and the `aud` that a token must have, when set. */
  readonly issuer?: string | undefined;
  readonly audience?: string | undefined;
  readonly clockSkewS?: number | undefined;
  /** The longest time that a token may be issued for. */
  readonly maxTtlS?: number | undefined;
  /** How many verified tokens are cached, to skip the signature of a repeated token. 0 caches none. */
  readonly remember?: number | undefined;
}

/** Verifies tokens. */
export interface Verifier {
  /** The viewer of a token; throws a KhalaError whose code is the reason for a refusal. */
  verify(token: string | undefined): Promise<Viewer>;
}

interface Verified {
  readonly viewer: Viewer;
  readonly key: PinnedKey;
  /** The token is good at `from <= now < until`, in milliseconds. */
  readonly from: number;
  readonly until: number;
}

/** Verifies tokens: signature by the key's own algorithm, time, claims, and revocation. */
export function createVerifier(options: VerifierOptions): Verifier {
  const { keys, revocations, clock, issuer, audience } = options;
  const { clockSkewS = 30, maxTtlS = 900, remember = 1_000 } = options;
  const remembered = new Map<string, Verified>();

  const verifyFully = async (token: string): Promise<Verified> => {
    const kid = readKid(token);
    const key = await keys.find(kid);
    if (!key) throw invalidToken("The token's kid names a key that this server does not know.");
    const now = clock.now();
    const { payload } = await jwtVerify(token, key.key, {
      // The key names its algorithm; a token that picks another one is an attack on the verifier.
      algorithms: [key.alg],
      currentDate: new Date(now),
      clockTolerance: clockSkewS,
      ...(issuer === undefined ? {} : { issuer }),
      ...(audience === undefined ? {} : { audience }),
    }).catch(explain);
    const viewer = readClaims(payload, kid);
    const from = validFrom(payload, viewer, { clockSkewS, maxTtlS }, now);
    return { viewer, key, from, until: viewer.expiresAt + clockSkewS * 1000 };
  };

  /** Time, keys and revocations change, so only the signature and the reading of the claims are saved. */
  const recall = async (digest: string): Promise<Verified | undefined> => {
    const found = remembered.get(digest);
    if (!found) return undefined;
    const now = clock.now();
    const timely = found.from <= now && now < found.until;
    if (timely && (await keys.find(found.viewer.kid)) === found.key) return found;
    remembered.delete(digest);
    return undefined;
  };

  return {
    async verify(token) {
      if (!token) {
        throw new KhalaError(
          "missing_authorization",
          "The request has no token. Send Authorization: Bearer <token>, or the token param on a socket.",
        );
      }
      if (token.length > MAX_TOKEN_CHARS) {
        throw invalidToken(`The token is longer than ${MAX_TOKEN_CHARS} characters.`);
      }
      const digest = sha256(token);
      const known = await recall(digest);
      const { viewer } = known ?? keep(remembered, remember, digest, await verifyFully(token));
      if (revocations.isRevoked(viewer)) throw tokenRevoked();
      return viewer;
    },
  };
}

function readKid(token: string): string {
  const { kid } = readHeader(token);
  if (typeof kid === "string" && kid !== "") return kid;
  throw invalidToken("The token's header has no kid.");
}

function readHeader(token: string): ProtectedHeaderParameters {
  try {
    return decodeProtectedHeader(token);
  } catch {
    throw malformed();
  }
}

/** Checks when the token was issued and for how long; returns the moment (ms) from which it is good. */
function validFrom(
  payload: JWTPayload,
  viewer: Viewer,
  { clockSkewS, maxTtlS }: { clockSkewS: number; maxTtlS: number },
  now: number,
): number {
  const skew = clockSkewS * 1000;
  const iat = payload.iat === undefined ? undefined : payload.iat * 1000;
  if (iat !== undefined && iat > now + skew) throw notYetValid("iat");
  // Without an iat the time that is left must fit: the token is then good from the longest lifetime before its end.
  const longest = maxTtlS * 1000 + skew;
  if (viewer.expiresAt - (iat ?? now) > longest) {
    throw invalidToken(`The token is valid for longer than the ${maxTtlS} seconds that this server allows.`);
  }
  const earliest = iat === undefined ? viewer.expiresAt - longest : iat - skew;
  return Math.max(earliest, (payload.nbf ?? 0) * 1000 - skew);
}

function keep(remembered: Map<string, Verified>, limit: number, digest: string, fresh: Verified): Verified {
  if (limit <= 0) return fresh;
  const oldest = remembered.size >= limit ? remembered.keys().next().value : undefined;
  if (oldest !== undefined) remembered.delete(oldest);
  remembered.set(digest, fresh);
  return fresh;
}

function notYetValid(claim: "iat" | "nbf"): KhalaError {
  return new KhalaError(
    "token_not_yet_valid",
    `The token's ${claim} is in the future. Check the clock of the machine that issued it, or wait.`,
  );
}

// jose's errors carry the payload, which belongs in no log, so they are classified here and not passed on as a cause.
function explain(error: unknown): never {
  if (error instanceof errors.JWTExpired) {
    throw new KhalaError("token_expired", "The token has expired. Get a new one and try again.");
  }
  if (error instanceof errors.JWTClaimValidationFailed) {
    if (error.claim === "nbf" && error.reason === "check_failed") throw notYetValid("nbf");
    throw invalidToken(
      `The token's ${error.claim} claim is missing or has a value that this server does not accept.`,
    );
  }
  if (error instanceof errors.JWSSignatureVerificationFailed) {
    throw invalidToken("The token's signature does not match its content.");
  }
  if (error instanceof errors.JOSEAlgNotAllowed) {
    throw invalidToken("The token is signed with an algorithm that does not match its key.");
  }
  if (error instanceof errors.JOSEError) throw malformed();
  throw error;
}

function malformed(): KhalaError {
  return invalidToken("The token is not a well-formed JWT.");
}
