import { randomBytes } from "node:crypto";
import type { Context } from "../../kit/context.ts";
import { createIssuer, type Issuer } from "./issuer.ts";
import { loadOrCreateDevKey } from "./keys/dev_key.ts";
import { readJwks } from "./keys/jwks.ts";
import { jwksFile } from "./keys/jwks_loaders.ts";
import { createKeyring, type Keyring, type KeySource } from "./keys/keys.ts";
import { readSecrets, type Secret } from "./keys/secrets.ts";
import type { Revocations } from "./revocations.ts";
import { createVerifier, type Verifier } from "./verifier.ts";

export interface AuthSettings {
  /** HS256 secrets as `kid:base64` pairs, separated by commas; the first signs. */
  readonly secrets: string | undefined;
  readonly jwksUrl: string | undefined;
  readonly jwksFile: string | undefined;
  readonly issuer: string | undefined;
  readonly audience: string | undefined;
  readonly clockSkewS: number;
  readonly minTtlS: number;
  readonly maxTtlS: number;
  /** Development: where a key of our own is kept when no other is set. Production has none. */
  readonly devKeyFile: string | undefined;
}

/** Authentication: the verifier of tokens, and the issuer where this server may mint them. */
export interface Auth {
  readonly verifier: Verifier;
  readonly keyring: Keyring;
  /** Undefined when this server has public keys only. */
  readonly issuer: Issuer | undefined;
}

/** Sets authentication up. Development makes its own key; production refuses to start without one. */
export async function openAuth(
  settings: AuthSettings,
  context: Context,
  revocations: Revocations,
): Promise<Auth> {
  const { clockSkewS, maxTtlS, issuer, audience } = settings;
  const secrets = readSigning(settings);
  const sources: KeySource[] = [];
  if (secrets.length > 0) {
    const byKid = Object.fromEntries(secrets.map(({ kid, secret }) => [kid, secret]));
    sources.push({ kind: "secrets", secrets: byKid });
  }
  if (settings.jwksUrl) sources.push({ kind: "jwks_url", url: settings.jwksUrl });
  if (settings.jwksFile) {
    await checkKeyFile(settings.jwksFile);
    sources.push({ kind: "jwks_file", path: settings.jwksFile });
  }
  if (sources.length === 0) {
    throw new Error(
      "`khala serve` needs keys: set KHALA_AUTH_SECRETS (kid:base64), KHALA_AUTH_JWKS_URL or KHALA_AUTH_JWKS_FILE.",
    );
  }
  const { clock, log } = context;
  const keyring = createKeyring(sources, { clock, report: (problem) => log.warn(problem) });
  await keyring.load();
  const verifier = createVerifier({
    keys: keyring,
    revocations,
    clock,
    clockSkewS,
    maxTtlS,
    issuer,
    audience,
  });
  return { verifier, keyring, issuer: openIssuer(settings, context) };
}

/** Throws when the file has no key set: unlike a URL that does not answer, it would stay so. */
export async function checkKeyFile(path: string): Promise<void> {
  try {
    readJwks(await jwksFile(path).load(true));
  } catch (cause) {
    const message = `KHALA_AUTH_JWKS_FILE: the key set ${path} cannot be read: ${(cause as Error).message}`;
    throw new Error(message, { cause });
  }
}

/** The issuer under these settings; undefined when they name public keys only. */
export function openIssuer(
  settings: AuthSettings,
  { clock, newId }: Pick<Context, "clock" | "newId">,
): Issuer | undefined {
  const { minTtlS, maxTtlS, issuer, audience } = settings;
  const [key] = readSigning(settings);
  return key && createIssuer({ ...key, clock, newId, issuer, audience, minTtlS, maxTtlS });
}

/** The secrets that tokens may be signed with. The first one signs new tokens, so they are a list: an object would sort kids that are numbers. */
function readSigning(settings: AuthSettings): readonly Secret[] {
  if (settings.secrets) return readSecrets(settings.secrets);
  if (settings.jwksUrl || settings.jwksFile || !settings.devKeyFile) return [];
  return [loadOrCreateDevKey(settings.devKeyFile, () => randomBytes(32))];
}
