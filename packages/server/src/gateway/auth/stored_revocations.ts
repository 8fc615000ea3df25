import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { memoryRevocations, REVOCATION_GRACE_MS, type Revocations } from "./revocation.ts";

/** Revocations that all servers share: kept in the database, known here in memory. */
export interface StoredRevocations extends Revocations, Service {
  /** Wakeup: another server revoked something. */
  refresh(): void;
}

/** Opens the shared revocations. What another server revokes is known here after a wakeup, or after `pollMs`. */
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
