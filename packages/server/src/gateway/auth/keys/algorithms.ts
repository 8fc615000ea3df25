import { createSecretKey, type KeyObject } from "node:crypto";
import { KhalaError } from "@khala/contracts";

/** An algorithm that tokens may be signed with. */
export type Algorithm = "HS256" | "RS256" | "ES256";

/** A key and the one algorithm that it may be used with. */
export interface PinnedKey {
  readonly alg: Algorithm;
  readonly key: KeyObject;
}

/** HS256 is as strong as its secret: RFC 7518 asks for the length of the hash. */
export const MIN_SECRET_BYTES = 32;

/** The key of a shared secret; text counts as its UTF-8 bytes. Refuses secrets that can be guessed. */
export function secretKey(kid: string, secret: Uint8Array | string): PinnedKey {
  const bytes = Buffer.from(secret);
  if (bytes.length >= MIN_SECRET_BYTES) return { alg: "HS256", key: createSecretKey(bytes) };
  throw new KhalaError(
    "invalid_request",
    `The HS256 secret of kid ${JSON.stringify(kid)} has ${bytes.length} bytes; it must have at least ${MIN_SECRET_BYTES}. ` +
      "Create one with: openssl rand -base64 48",
    { field: "secret" },
  );
}

/** The one algorithm that a JWK may be used with; throws when it is none of ours or contradicts the key's type. */
export function jwkAlgorithm(jwk: Readonly<Record<string, unknown>>): Algorithm {
  const fits = jwk.kty === "RSA" ? "RS256" : jwk.kty === "EC" && jwk.crv === "P-256" ? "ES256" : undefined;
  if (fits && (jwk.alg === undefined || jwk.alg === fits)) return fits;
  throw new Error("only RSA keys for RS256 and P-256 keys for ES256 are supported");
}
