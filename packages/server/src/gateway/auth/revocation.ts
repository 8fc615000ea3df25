import { KhalaError } from "@khala/contracts";
import type { Clock } from "../../kit/clock.ts";

/** Called with the jti of a token the moment it is known to be revoked. */
export type RevocationListener = (jti: string) => void;

/** Tokens that were taken back before they expired. */
export interface Revocations {
  isRevoked(jti: string): boolean | Promise<boolean>;
  /** Takes a token back; `expiresAt` (ms) is its `exp`. */
  revoke(jti: string, expiresAt: number): Promise<void>;
  /** Tells of every revocation from now on, so that open sockets can be closed; the returned function stops it. */
  onRevoked(listener: RevocationListener): () => void;
}

/** The listeners of one source of revocations. */
interface RevocationListeners {
  add(listener: RevocationListener): () => void;
  emit(jti: string): void;
}

/** How long a revocation outlives its token: covers the clock skew and a clock that is set back. */
export const REVOCATION_GRACE_MS = 3_600_000;

/** Listeners that are all told, even when one of them throws. */
function revocationListeners(): RevocationListeners {
  const listeners = new Set<{ readonly call: RevocationListener }>();
  return {
    add(listener) {
      const entry = { call: listener };
      listeners.add(entry);
      return () => void listeners.delete(entry);
    },
    emit(jti) {
      const failures: unknown[] = [];
      for (const listener of [...listeners]) {
        try {
          listener.call(jti);
        } catch (error) {
          failures.push(error);
        }
      }
      if (failures.length > 0) throw new AggregateError(failures, "A listener of revocations failed.");
    },
  };
}

/** Revocations of this process alone, for tests and a single dev server. */
export function memoryRevocations(clock: Clock, { maxEntries = 100_000 } = {}): Revocations {
  const forgetAt = new Map<string, number>();
  const listeners = revocationListeners();

  const makeRoom = () => {
    const now = clock.now();
    for (const [jti, at] of forgetAt) if (at <= now) forgetAt.delete(jti);
    // Forgetting a live revocation would let the token back in, so a full list refuses instead.
    if (forgetAt.size < maxEntries) return;
    throw new KhalaError(
      "limit_exceeded",
      `${maxEntries} revoked tokens are remembered and none has expired. Try again when some have, or raise the limit.`,
    );
  };

  return {
    isRevoked: (jti) => forgetAt.has(jti),
    async revoke(jti, expiresAt) {
      const known = forgetAt.get(jti);
      if (known === undefined) makeRoom();
      forgetAt.set(jti, Math.max(known ?? 0, expiresAt + REVOCATION_GRACE_MS));
      listeners.emit(jti);
    },
    onRevoked: (listener) => listeners.add(listener),
  };
}
