import { timingSafeEqual } from "node:crypto";
import { KhalaError, SCOPES } from "@khala/contracts";
import { TokenRequestSchema } from "@khala/contracts/sync/v1";
import type { FastifyRequest } from "fastify";
import type { Clock } from "../../../kit/clock.ts";
import { sha256 } from "../../../kit/hash.ts";
import { bearerToken } from "../../auth/bearer.ts";
import { isName, requireScope } from "../../auth/claims.ts";
import type { Issuer } from "../../auth/issuer.ts";
import { isLocal } from "../../auth/origin.ts";
import type { Revocations } from "../../auth/revocations.ts";
import type { Http } from "../http.ts";
import { readMessage } from "../read_request.ts";

export interface TokenRouteOptions {
  /** Undefined when this server only verifies. */
  readonly issuer: Issuer | undefined;
  /** The key that allows minting and revoking. */
  readonly issuerKey: string | undefined;
  /** Development: every program on this machine may mint. */
  readonly openOnLoopback: boolean;
  readonly origins: readonly string[];
  readonly revocations: Revocations;
  readonly maxTtlS: number;
  readonly clock: Clock;
}

/** `POST /api/sync/token` and `POST /api/sync/revoke`. */
export function tokenRoutes(http: Http, options: TokenRouteOptions): void {
  http.app.post("/api/sync/token", async (request, reply) => {
    if (!holdsIssuerKey(request) && !(options.openOnLoopback && isLocal(request, options.origins)))
      denied(request);
    if (!options.issuer)
      throw new KhalaError("not_found", "This server does not mint tokens: it has no signing key.");
    const { sub, orgId, scopes, ttlS } = readMessage(TokenRequestSchema, request.body);
    const minted = await options.issuer.mint({
      sub,
      org_id: orgId,
      scopes,
      ...(ttlS !== undefined && { ttl_s: ttlS }),
    });
    return reply.header("Cache-Control", "no-store").send(minted);
  });

  http.app.post("/api/sync/revoke", async (request, reply) => {
    if (!holdsIssuerKey(request)) requireScope(await http.viewer(request), SCOPES.ops);
    const { jti } = (request.body ?? {}) as { jti?: unknown };
    if (!isName(jti))
      throw new KhalaError("invalid_request", "Name the jti of the token to revoke.", { field: "jti" });
    await options.revocations.revoke(jti, options.clock.now() + options.maxTtlS * 1_000);
    return reply.code(204).send();
  });

  function holdsIssuerKey(request: FastifyRequest): boolean {
    const given = bearerToken(request.headers);
    if (!options.issuerKey || !given) return false;
    // Hashes have equal lengths, which timingSafeEqual needs.
    return timingSafeEqual(Buffer.from(sha256(given)), Buffer.from(sha256(options.issuerKey)));
  }
}

function denied(request: FastifyRequest): never {
  const code = request.headers.authorization ? "invalid_token" : "missing_authorization";
  throw new KhalaError(code, "Send the issuer key (KHALA_AUTH_ISSUER_KEY) as `Authorization: Bearer`.");
}
