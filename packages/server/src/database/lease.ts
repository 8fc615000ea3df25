import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Database } from "./database.ts";

/** A lock with an expiry, held by one process at a time. */
export interface Lease extends Service {
  /** Whether this process holds it. A process that was paused may be wrong: writes must not rely on it. */
  held(): boolean;
}

/**
 * Acquires a named lease as soon as it is free and renews it until stopped. It expires `ttlMs` after the last renewal.
 * `onTaken` is called whenever this process acquires it.
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
            "the lease was not released; it expires by itself",
          ),
        );
    },
  };
}

/** A number that no other running process holds. */
export interface Slot extends Service {
  readonly number: number;
  /** Whether this process still holds it. */
  held(): boolean;
}

/** A slot that is replaced by another one when it is lost. */
export interface KeptSlot extends Service {
  /** The number. It changes if the lease expired because this process was paused for too long. */
  number(): Promise<number>;
}

const SLOTS = 1_000;
const TRIES = 20;
const PAUSE_MS = 50;

/** Acquires the lowest free number of a name, and holds it until stopped. */
export async function takeSlot(
  database: Database,
  context: Context,
  name: string,
  ttlMs: number,
): Promise<Slot> {
  for (let tries = 0; tries < TRIES; tries++) {
    const number = await lowestFree(database, name);
    const taken = Promise.withResolvers<boolean>();
    const lease = holdLease(database, context, `${name} ${number}`, ttlMs, () => taken.resolve(true));
    // If another process was faster, this one tries again.
    const won = await Promise.race([
      taken.promise,
      sleep(context.clock, PAUSE_MS * 2 ** Math.min(tries, 6)).then(() => lease.held()),
    ]);
    if (won) return { number, held: () => lease.held(), stop: () => lease.stop() };
    await lease.stop();
  }
  throw new Error(
    `No free slot of "${name}" could be acquired. Check that the database is reachable and writable.`,
  );
}

/** Acquires a slot, and another one when `number` finds that it was lost. */
export async function keepSlot(
  database: Database,
  context: Context,
  name: string,
  ttlMs: number,
): Promise<KeptSlot> {
  let slot = await takeSlot(database, context, name, ttlMs);
  let taking: Promise<void> | undefined;

  async function take(): Promise<void> {
    const before = slot.number;
    // First, so that this process may acquire the same number again.
    await slot.stop();
    slot = await takeSlot(database, context, name, ttlMs);
    context.log.warn({ slot: name, before, now: slot.number }, "a slot was lost; acquired another one");
  }

  return {
    async number() {
      if (!slot.held()) {
        taking ??= take().finally(() => {
          taking = undefined;
        });
        await taking;
      }
      return slot.number;
    },
    async stop() {
      await taking?.catch(() => {});
      await slot.stop();
    },
  };
}

async function lowestFree(database: Database, name: string): Promise<number> {
  const [row] = await database.query<{ n: number }>({
    text: `SELECT n::int AS n FROM generate_series(0, $2 - 1) AS n
      WHERE NOT EXISTS (SELECT 1 FROM runtime.leases l WHERE l.name = $1 || ' ' || n AND l.expires_at > now())
      ORDER BY n LIMIT 1`,
    values: [name, SLOTS],
  });
  if (!row) throw new Error(`All ${SLOTS} slots of "${name}" are in use.`);
  return row.n;
}
