import { timingSafeEqual } from "node:crypto";
import { KhalaError, SCOPES } from "@khala/contracts";
import { TokenRequestSchema } from "@khala/contracts/sync/v1";
import type { FastifyRequest } from "fastify";
import { notFound, orgOf } from "../../../access/access.ts";
import { type Action, ISSUER } from "../../../access/actions.ts";
import type { Viewer } from "../../../access/viewer.ts";
import type { Clock } from "../../../kit/clock.ts";
import { sha256 } from "../../../kit/hash.ts";
import { bearerToken } from "../../auth/bearer.ts";
import { isName } from "../../auth/claims.ts";
import type { Issuer } from "../../auth/issuer.ts";
import { mayMint } from "../../auth/origin.ts";
import type { Revocation, Revocations } from "../../auth/revocations.ts";
import type { Http } from "../http.ts";
import { readMessage } from "../read_request.ts";

export interface TokenRouteOptions {
  /** Undefined when this server only verifies. */
  readonly issuer: Issuer | undefined;
  readonly revocations: Revocations;
  readonly maxTtlS: number;
  readonly clock: Clock;
}

/** `POST /api/sync/token` and `POST /api/sync/revoke`. */
export function tokenRoutes(http: Http, { issuer, revocations, maxTtlS, clock }: TokenRouteOptions): void {
  http.route("token.mint", "POST", "/api/sync/token", async (_viewer, request, reply, audited) => {
    if (!issuer)
      throw new KhalaError("not_found", "This server does not mint tokens: it has no signing key.");
    const { sub, orgId, scopes, ttlS } = readMessage(TokenRequestSchema, request.body);
    audited.org = orgId;
    audited.resource = `${sub} ${scopes.join(" ")}`.slice(0, 600);
    const minted = await issuer.mint({
      sub,
      org_id: orgId,
      scopes,
      ...(ttlS !== undefined && { ttl_s: ttlS }),
    });
    return reply.send(minted);
  });

  http.route("token.revoke", "POST", "/api/sync/revoke", async (viewer, request, reply, audited) => {
    const revocation = readRevocation(viewer, request.body);
    audited.resource = JSON.stringify(revocation);
    if (revocation.org !== undefined) audited.org = revocation.org;
    await revocations.revoke(revocation, clock.now() + maxTtlS * 1_000);
    return reply.code(204).send();
  });
}

/** Reads `{"jti"}`, `{"sub"}` or `{"org_id"}`: what is revoked in the caller's org, or in the org that a platform caller names. */
function readRevocation(viewer: Viewer, body: unknown): Revocation {
  const sent = Object(body) as { jti?: unknown; sub?: unknown; org_id?: unknown };
  for (const field of ["jti", "sub", "org_id"] as const) {
    if (sent[field] !== undefined && !isName(sent[field]))
      throw new KhalaError("invalid_request", `${field} must be a string of 1 to 256 printable characters.`, {
        field,
      });
  }
  const { jti, sub: subject, org_id } = sent as { jti?: string; sub?: string; org_id?: string };
  if ((jti === undefined) === (subject === undefined) && (jti !== undefined || org_id === undefined)) {
    const message = "Name what to revoke: jti for one token, sub for a subject, or org_id for a whole org.";
    throw new KhalaError("invalid_request", message, { field: "jti" });
  }
  const own = orgOf(viewer, "token.revoke");
  if (own !== undefined && org_id !== undefined && org_id !== own) throw notFound("org", org_id);
  // The platform revokes a jti wherever it is; a subject is of its own org unless another one is named.
  const org = org_id ?? own ?? (subject === undefined ? undefined : viewer.org || undefined);
  if (subject !== undefined && org === undefined)
    throw new KhalaError("invalid_request", "org_id is missing. Send the org of the subject.", {
      field: "org_id",
    });
  return {
    ...(org !== undefined && { org }),
    ...(subject !== undefined && { subject }),
    ...(jti !== undefined && { jti }),
  };
}

/** The holder of the issuer key: it belongs to no org, and operates the installation. */
const ISSUER_VIEWER: Viewer = {
  subject: "issuer",
  org: "",
  scopes: new Set([ISSUER, SCOPES.platform]),
  claimsVersion: "0",
  expiresAt: Number.POSITIVE_INFINITY,
  jti: "",
  kid: "",
};

export interface IssuerKeyOptions {
  /** The key that allows minting, and revoking in every org. */
  readonly issuerKey: string | undefined;
  /** Development: every program on this machine may mint. */
  readonly openOnLoopback: boolean;
}

/** Recognises who needs no token: the holder of the issuer key, and in development programs of this machine. */
export function issuerCaller(options: IssuerKeyOptions) {
  return (request: FastifyRequest, action: Action): Viewer | undefined => {
    if (action !== "token.mint" && action !== "token.revoke") return undefined;
    if (holdsKey(request)) return ISSUER_VIEWER;
    if (action !== "token.mint") return undefined;
    if (options.openOnLoopback && mayMint(request)) return ISSUER_VIEWER;
    const code = request.headers.authorization ? "invalid_token" : "missing_authorization";
    throw new KhalaError(code, "Send the issuer key (KHALA_AUTH_ISSUER_KEY) as `Authorization: Bearer`.");
  };

  function holdsKey(request: FastifyRequest): boolean {
    const given = bearerToken(request.headers);
    if (!options.issuerKey || !given) return false;
    // Hashes have equal lengths, which timingSafeEqual needs.
    return timingSafeEqual(Buffer.from(sha256(given)), Buffer.from(sha256(options.issuerKey)));
  }
}
