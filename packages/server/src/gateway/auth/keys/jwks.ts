import { createPublicKey } from "node:crypto";
import { jwkAlgorithm, type PinnedKey } from "./algorithms.ts";

/** The usable keys of a JSON Web Key Set by kid, and why the others are not used. */
export interface ReadJwks {
  readonly keys: ReadonlyMap<string, PinnedKey>;
  readonly skipped: readonly string[];
}

const MAX_KEYS = 100;
const MIN_RSA_BITS = 2048;

/** Reads a JSON Web Key Set. A key that cannot be used is skipped, so that one bad key does not take the others along. */
export function readJwks(json: unknown): ReadJwks {
  const list = isRecord(json) ? json.keys : undefined;
  if (!Array.isArray(list)) throw new Error('It is not a JSON Web Key Set: {"keys":[…]} is expected.');
  if (list.length > MAX_KEYS) throw new Error(`It has ${list.length} keys; at most ${MAX_KEYS} are read.`);

  const keys = new Map<string, PinnedKey>();
  const skipped: string[] = [];
  for (const [index, jwk] of list.entries()) {
    try {
      const [kid, key] = readJwk(jwk);
      if (keys.has(kid)) throw new Error("another key of the set has the same kid");
      keys.set(kid, key);
    } catch (error) {
      skipped.push(`key ${index + 1}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return { keys, skipped };
}

function readJwk(jwk: unknown): [string, PinnedKey] {
  if (!isRecord(jwk)) throw new Error("it is not an object");
  if (typeof jwk.kid !== "string" || jwk.kid === "") throw new Error("it has no kid");
  if (jwk.use !== undefined && jwk.use !== "sig") throw new Error("its use is not sig");
  if (jwk.key_ops !== undefined && !(Array.isArray(jwk.key_ops) && jwk.key_ops.includes("verify"))) {
    throw new Error("its key_ops do not contain verify");
  }
  // A secret in a public key set is no secret any more.
  if (jwk.d !== undefined || jwk.k !== undefined) throw new Error("it is private; publish public keys only");
  const alg = jwkAlgorithm(jwk);
  const key = createPublicKey({ key: jwk, format: "jwk" });
  const bits = key.asymmetricKeyDetails?.modulusLength;
  if (bits !== undefined && bits < MIN_RSA_BITS)
    throw new Error(`it has ${bits} bits; RSA needs ${MIN_RSA_BITS}`);
  return [jwk.kid, { alg, key }];
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
