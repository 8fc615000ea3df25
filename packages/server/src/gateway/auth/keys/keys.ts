import { KhalaError } from "@khala/contracts";
import type { Clock } from "../../../kit/clock.ts";
import { type PinnedKey, secretKey } from "./algorithms.ts";
import { createJwksCache, type JwksCache } from "./jwks_cache.ts";
import { jwksFile, jwksUrl } from "./jwks_loaders.ts";

/** Where keys come from: shared secrets by kid, or a JSON Web Key Set behind a URL or in a file. */
export type KeySource =
  | { readonly kind: "secrets"; readonly secrets: Readonly<Record<string, Uint8Array | string>> }
  | { readonly kind: "jwks_url"; readonly url: string; readonly timeoutMs?: number | undefined }
  | { readonly kind: "jwks_file"; readonly path: string };

/** The keys that tokens are verified with, kept up to date while the server runs. */
export interface Keyring {
  /** The key with this kid; undefined when no source has it; throws unavailable when a source cannot be read now. */
  find(kid: string): Promise<PinnedKey | undefined>;
  /** Loads what is not loaded yet. Never throws: `problems` has the reasons. */
  load(): Promise<void>;
  /** Why sources cannot be read now, one sentence each. */
  problems(): readonly string[];
}

/** Dependencies of a keyring. */
export interface KeyringDeps {
  readonly clock: Clock;
  /** Called for sources that cannot be read and keys that cannot be used; for the log. */
  readonly report: (problem: string) => void;
}

/** Keys of several sources. A kid belongs to the first source that has it, secrets before key sets. */
export function createKeyring(sources: readonly KeySource[], { clock, report }: KeyringDeps): Keyring {
  const secrets = new Map<string, PinnedKey>();
  const sets: JwksCache[] = [];
  for (const source of sources) {
    if (source.kind === "secrets") {
      for (const [kid, secret] of Object.entries(source.secrets)) {
        secrets.set(kid, secretKey(kid, secret));
      }
    } else if (source.kind === "jwks_url") {
      sets.push(createJwksCache(jwksUrl(source), { clock, report, maxAgeMs: 600_000, cooldownMs: 10_000 }));
    } else {
      sets.push(
        createJwksCache(jwksFile(source.path), { clock, report, maxAgeMs: 1_000, cooldownMs: 1_000 }),
      );
    }
  }
  if (secrets.size === 0 && sets.length === 0) {
    throw new KhalaError(
      "invalid_request",
      "No key to verify tokens is configured. Set KHALA_AUTH_SECRETS, KHALA_AUTH_JWKS_URL or KHALA_AUTH_JWKS_FILE.",
    );
  }

  const problems = () => sets.flatMap((set) => set.problem() ?? []);
  return {
    async find(kid) {
      const secret = secrets.get(kid);
      if (secret) return secret;
      // Ask for what is known first, so that a kid of the second set does not make the first one reload.
      for (const onUnknown of ["give_up", "reload"] as const) {
        for (const set of sets) {
          const key = await set.find(kid, onUnknown);
          if (key) return key;
        }
      }
      if (problems().length === 0) return undefined;
      throw new KhalaError(
        "unavailable",
        "The keys to verify tokens are not available at the moment. Try again with the same token.",
        { retry_after_ms: 1_000 },
      );
    },
    async load() {
      await Promise.all(sets.map((set) => set.load()));
    },
    problems,
  };
}
