import { existsSync } from "node:fs";
import { join } from "node:path";
import { KhalaError } from "@khala/contracts";
import type { Config } from "@khala/server";
import { type MintedToken, mintToken } from "@khala/server/operations";
import { COMMAND } from "./environment.ts";
import { EXIT, Failure } from "./failure.ts";
import type { TokenWish } from "./tokens.ts";

/** Signs a token with the keys on this machine, as the server of this folder or these settings would accept it. */
export async function mintHere(config: Config, { sub, org, scopes, ttl }: TokenWish): Promise<MintedToken> {
  const { KHALA_AUTH_SECRETS, KHALA_AUTH_JWKS_URL, KHALA_AUTH_JWKS_FILE, KHALA_DATA_DIR } = config;
  const hasKeys = KHALA_AUTH_SECRETS || KHALA_AUTH_JWKS_URL || KHALA_AUTH_JWKS_FILE;
  if (!hasKeys && !existsSync(join(KHALA_DATA_DIR, "dev.key"))) {
    const advice = `Start \`${COMMAND} dev\` once, set KHALA_AUTH_SECRETS, or ask a server with --url.`;
    throw new Failure(`There is no key in ${KHALA_DATA_DIR}. ${advice}`, EXIT.usage);
  }
  try {
    const ttl_s = ttl ?? config.KHALA_AUTH_MAX_TTL_S;
    const minted = await mintToken(config, true, { sub, org_id: org, scopes, ttl_s });
    if (minted) return minted;
  } catch (error) {
    if (error instanceof KhalaError) throw new Failure(error.message, EXIT.usage, { cause: error });
    throw error;
  }
  throw new Failure("A key set has public keys only: ask whoever issues your tokens.", EXIT.usage);
}
