import { randomBytes, randomUUID } from "node:crypto";
import { SCOPES } from "@khala/contracts";
import { createIssuer, type MintRequest } from "../../../server/src/gateway/auth/issuer.ts";
import { systemClock } from "../../../server/src/kit/clock.ts";

/** Topics of all built-in models. */
export const TOPICS = [
  "runtime.run_summaries",
  "runtime.codex_worker_summaries",
  "runtime.notifications",
  "lightning.control_plane",
] as const;

/** A secret that gateways are started with, and tokens that it signs. */
export interface TokenMint {
  /** The value of KHALA_AUTH_SECRETS. */
  readonly secrets: string;
  /** A token for the built-in topics and for writing, unless `claims` says otherwise. */
  mint(org: string, subject: string, claims?: Partial<MintRequest>): Promise<string>;
}

/** Makes a secret of its own. */
export function tokenMint(): TokenMint {
  const secret = randomBytes(32);
  const issuer = createIssuer({ kid: "test", secret, clock: systemClock, newId: randomUUID });
  const scopes = [...TOPICS, SCOPES.runtimeWrite];
  return {
    secrets: `test:${secret.toString("base64")}`,
    async mint(org_id, sub, claims) {
      return (await issuer.mint({ org_id, sub, scopes, ttl_s: 900, ...claims })).token;
    },
  };
}
