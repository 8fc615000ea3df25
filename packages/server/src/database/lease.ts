import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Database } from "./database.ts";

/** A claim to be the one process that does a job. */
export interface Lease extends Service {
  /** Whether this process holds it. A paused process may believe so too long: writes must guard themselves. */
  held(): boolean;
}

/**
 * Holds a named lease while this process lives. A process that dies or sleeps loses it after `ttlMs`;
 * `onTaken` is called whenever this process gets it.
 */
export function holdLease(
  database: Database,
  context: Context,
  name: string,
  ttlMs: number,
  onTaken: () => void,
): Lease {
  const holder = context.newId();
  let heldUntil = 0;
  const loop = runLoop(context, `lease ${name}`, {
    wake: new Wake(),
    idleMs: ttlMs / 4,
    async step(signal) {
      const asked = context.clock.now();
      const rows = await database.query({
        name: "lease_hold",
        text: `INSERT INTO runtime.leases AS l (name, holder, expires_at) VALUES ($1, $2, now() + $3 * interval '1 ms')
          ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
          WHERE l.holder = excluded.holder OR l.expires_at < now() RETURNING 1`,
        values: [name, holder, ttlMs],
      });
      const before = heldUntil > asked;
      heldUntil = rows.length > 0 ? asked + ttlMs : 0;
      if (!before && rows.length > 0 && !signal.aborted) onTaken();
      return false;
    },
  });
  return {
    held: () => heldUntil > context.clock.now(),
    async stop() {
      await loop.stop();
      heldUntil = 0;
      await database
        .query({ text: "DELETE FROM runtime.leases WHERE name = $1 AND holder = $2", values: [name, holder] })
        .catch((error) =>
          context.log.warn(
            { err: error.message, lease: name },
            "the lease was not given back; it expires by itself",
          ),
        );
    },
  };
}
