import { existsSync } from "node:fs";
import { join } from "node:path";
import { KhalaError } from "@khala/contracts";
import type { Config } from "@khala/server";
import { DEV, type Minted, requestToken, type TokenRequest } from "../client/tokens.ts";
import { COMMAND, dataFolder, readSettings, type SettingOptions } from "../environment.ts";
import { EXIT, Failure } from "../failure.ts";
import { everyScope, findNames } from "../local/app_names.ts";
import { note, print } from "../terminal/terminal.ts";

export interface TokenOptions extends SettingOptions {
  readonly sub?: string;
  readonly org?: string;
  readonly scope?: readonly string[];
  readonly ttl?: number;
  readonly url?: string;
  readonly app?: string;
  readonly json?: boolean;
}

/** `khala token`: prints a token, and nothing else on the output. */
export async function token(options: TokenOptions): Promise<void> {
  const request: TokenRequest = {
    sub: options.sub ?? DEV.sub,
    org: options.org ?? DEV.org,
    scopes: options.scope ?? everyScope(await findNames(options.app, options.dataDir ?? dataFolder())),
    ...(options.ttl !== undefined && { ttl: options.ttl }),
  };
  const minted = options.url
    ? await requestToken(options.url, request)
    : await signToken(await readSettings(options), request);
  print(options.json ? JSON.stringify(minted) : minted.token);
  if (!options.json && process.stdout.isTTY)
    note(`For "${request.sub}" of "${request.org}", until ${minted.expires_at}: ${request.scopes.join(" ")}`);
}

/** Signs a token with the keys on this machine, as the server of this folder or these settings would accept it. */
async function signToken(config: Config, { sub, org, scopes, ttl }: TokenRequest): Promise<Minted> {
  const { KHALA_AUTH_SECRETS, KHALA_AUTH_JWKS_URL, KHALA_AUTH_JWKS_FILE, KHALA_DATA_DIR } = config;
  const hasKeys = KHALA_AUTH_SECRETS || KHALA_AUTH_JWKS_URL || KHALA_AUTH_JWKS_FILE;
  if (!hasKeys && !existsSync(join(KHALA_DATA_DIR, "dev.key"))) {
    const advice = `Start \`${COMMAND} dev\` once, set KHALA_AUTH_SECRETS, or ask a server with --url.`;
    throw new Failure(`There is no signing key in ${KHALA_DATA_DIR}. ${advice}`, EXIT.usage);
  }
  try {
    // Loaded only here: a command that asks a server need not wait for it.
    const { mintToken } = await import("@khala/server/operations");
    const ttl_s = ttl ?? config.KHALA_AUTH_MAX_TTL_S;
    const minted = await mintToken(config, true, { sub, org_id: org, scopes, ttl_s });
    if (minted) return minted;
  } catch (error) {
    if (error instanceof KhalaError) throw new Failure(error.message, EXIT.usage, { cause: error });
    throw error;
  }
  throw new Failure(
    "A key set has only public keys, which cannot sign tokens. Ask the issuer of your tokens for a token.",
    EXIT.usage,
  );
}
