import { KhalaError } from "@khala/contracts";
import type { Database } from "../../database/database.ts";
import type { Clock } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";

/** Called with the jti of a token the moment it is known to be revoked. */
export type RevocationListener = (jti: string) => void;

/** Tokens that were taken back before they expired. */
export interface Revocations {
  isRevoked(jti: string): boolean | Promise<boolean>;
  /** Takes a token back; `expiresAt` (ms) is its `exp`. */
  revoke(jti: string, expiresAt: number): Promise<void>;
  /** Calls `listener` for every revocation from now on, so that open sockets can be closed; the returned function unsubscribes. */
  onRevoked(listener: RevocationListener): () => void;
}

/** The listeners of one source of revocations. */
interface RevocationListeners {
  add(listener: RevocationListener): () => void;
  emit(jti: string): void;
}

/** How long a revocation outlives its token: covers the clock skew and a clock that is set back. */
export const REVOCATION_GRACE_MS = 3_600_000;

/** Listeners that are all called, even when one of them throws. */
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

/** Revocations that all servers share: kept in the database, known here in memory. */
export interface StoredRevocations extends Revocations, Service {
  /** Wakeup: another server revoked something. */
  refresh(): void;
}

/** Opens the shared revocations. Revocations of other servers arrive with a wake-up, or after `pollMs`. */
export function openStoredRevocations(
  database: Database,
  context: Context,
  pollMs: number,
  onRevoke: () => void,
): StoredRevocations {
  const known = memoryRevocations(context.clock);
  const wake = new Wake();
  const loop = runLoop(context, "revocations", {
    wake,
    idleMs: pollMs,
    async step() {
      const rows = await database.query<{ jti: string; expires_at: Date }>({
        name: "revoked_tokens",
        text: "SELECT jti, expires_at FROM runtime.revoked_tokens WHERE expires_at > now()",
      });
      for (const { jti, expires_at } of rows) {
        if (!(await known.isRevoked(jti)))
          await known.revoke(jti, expires_at.getTime() - REVOCATION_GRACE_MS);
      }
      return false;
    },
  });
  return {
    isRevoked: (jti) => known.isRevoked(jti),
    onRevoked: (listener) => known.onRevoked(listener),
    async revoke(jti, expiresAt) {
      await database.query({
        text: `WITH expired AS (DELETE FROM runtime.revoked_tokens WHERE expires_at < now())
          INSERT INTO runtime.revoked_tokens (jti, expires_at) VALUES ($1, $2) ON CONFLICT (jti) DO NOTHING`,
        values: [jti, new Date(expiresAt + REVOCATION_GRACE_MS)],
      });
      await known.revoke(jti, expiresAt);
      onRevoke();
    },
    refresh: () => wake.wake(),
    stop: () => loop.stop(),
  };
}
