import { randomBytes } from "node:crypto";
import type { Context } from "../../kit/context.ts";
import { loadOrCreateDevKey } from "./dev_key.ts";
import { createIssuer, type Issuer } from "./issuer.ts";
import { createKeyring, type Keyring, type KeySource } from "./keys.ts";
import type { Revocations } from "./revocation.ts";
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

/** Who gets in, and who may let others in. */
export interface Auth {
  readonly verifier: Verifier;
  readonly keyring: Keyring;
  /** Undefined when this server has public keys only. */
  readonly issuer: Issuer | undefined;
}

/** Sets authentication up. Development makes its own key; production refuses to start without one. */
export async function setUpAuth(
  settings: AuthSettings,
  context: Context,
  revocations: Revocations,
): Promise<Auth> {
  const { minTtlS, maxTtlS, issuer: issuerName, audience } = settings;
  const sources: KeySource[] = [];
  let signing: { kid: string; secret: Uint8Array } | undefined;
  if (settings.secrets) {
    const secrets = readSecrets(settings.secrets);
    const [kid, secret] = Object.entries(secrets)[0]!;
    signing = { kid, secret };
    sources.push({ kind: "secrets", secrets });
  }
  if (settings.jwksUrl) sources.push({ kind: "jwks_url", url: settings.jwksUrl });
  if (settings.jwksFile) sources.push({ kind: "jwks_file", path: settings.jwksFile });
  if (sources.length === 0) {
    if (!settings.devKeyFile) {
      throw new Error(
        "`khala serve` needs keys: set KHALA_AUTH_SECRETS (kid:base64), KHALA_AUTH_JWKS_URL or KHALA_AUTH_JWKS_FILE.",
      );
    }
    signing = loadOrCreateDevKey(settings.devKeyFile, () => randomBytes(32));
    sources.push({ kind: "secrets", secrets: { [signing.kid]: signing.secret } });
  }
  const keyring = createKeyring(sources, {
    clock: context.clock,
    report: (problem) => context.log.warn(problem),
  });
  await keyring.load();
  const shared = { clock: context.clock, issuer: issuerName, audience, maxTtlS };
  const verifier = createVerifier({ ...shared, keys: keyring, revocations, clockSkewS: settings.clockSkewS });
  const defaultTtlS = Math.min(Math.max(300, minTtlS), maxTtlS);
  const issuer =
    signing && createIssuer({ ...shared, ...signing, newId: context.newId, minTtlS, defaultTtlS });
  return { verifier, keyring, issuer };
}

function readSecrets(text: string): Record<string, Uint8Array> {
  const pairs = text.split(",").map((pair) => {
    const colon = pair.indexOf(":");
    const kid = pair.slice(0, colon).trim();
    const secret = Buffer.from(pair.slice(colon + 1).trim(), "base64");
    if (colon < 1 || secret.length < 32) {
      throw new Error(
        "KHALA_AUTH_SECRETS is `kid:base64` pairs separated by commas, each secret of 32 bytes or more.",
      );
    }
    return [kid, secret] as const;
  });
  return Object.fromEntries(pairs);
}
