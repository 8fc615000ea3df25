import { randomUUID } from "node:crypto";
import { runSummaries } from "@khala/server";
import { createIssuer } from "../../../packages/server/src/gateway/auth/issuer.ts";
import { systemClock } from "../../../packages/server/src/kit/clock.ts";
import { ORG } from "./documents.ts";

/** The secret that signs the tokens. */
export const SECRET = Buffer.alloc(32, 7);

/** The setting by which a server here knows the tokens made here. */
export const AUTH_SECRETS = `bench:${SECRET.toString("base64")}`;

/** A token with these scopes. */
export async function mintToken(scopes: string[]): Promise<string> {
  const issuer = createIssuer({ kid: "bench", secret: SECRET, clock: systemClock, newId: randomUUID });
  return (await issuer.mint({ sub: "user_0", org_id: ORG, scopes, ttl_s: 900 })).token;
}

/** Tokens of as many different people: `user_0`, `user_1` and so on. */
export async function mintTokens(count: number, scope: string = runSummaries.topic): Promise<string[]> {
  const issuer = createIssuer({ kid: "bench", secret: SECRET, clock: systemClock, newId: randomUUID });
  const mint = (_: unknown, n: number) =>
    issuer.mint({ sub: `user_${n}`, org_id: ORG, scopes: [scope], ttl_s: 900 });
  return (await Promise.all(Array.from({ length: count }, mint))).map(({ token }) => token);
}

/** A token for each of as many orgs: `org-0`, `org-1` and so on. */
export async function mintOrgTokens(count: number, scope: string): Promise<Map<string, string>> {
  const issuer = createIssuer({ kid: "bench", secret: SECRET, clock: systemClock, newId: randomUUID });
  const tokens = new Map<string, string>();
  for (let n = 0; n < count; n++) {
    const { token } = await issuer.mint({ sub: "user_0", org_id: `org-${n}`, scopes: [scope], ttl_s: 900 });
    tokens.set(`org-${n}`, token);
  }
  return tokens;
}
