import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import type { Service } from "../kit/service.ts";
import type { Database } from "./database.ts";
import { holdLease } from "./lease.ts";

/** A number that no other live process has. */
export interface Slot extends Service {
  readonly number: number;
  /** Whether it is still this process's. */
  held(): boolean;
}

/** A number that no other live process has, whatever happens to the one that was taken first. */
export interface KeptSlot extends Service {
  /** The number; another one after somebody else has taken it, because this process was away for too long. */
  number(): Promise<number>;
}

const SLOTS = 1_000;
const TRIES = 20;
const PAUSE_MS = 50;

/** Takes the lowest free number under a name, and holds it while this process lives. */
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
    // Whoever came first has it, and this process looks again.
    const won = await Promise.race([
      taken.promise,
      sleep(context.clock, PAUSE_MS * 2 ** Math.min(tries, 6)).then(() => lease.held()),
    ]);
    if (won) return { number, held: () => lease.held(), stop: () => lease.stop() };
    await lease.stop();
  }
  throw new Error(`No free slot of "${name}" could be taken. Is the database reachable and writable?`);
}

/** Takes a slot, and another one when it is asked for the number of one that was lost. */
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
    // First, so that this process does not keep itself from the number, if nobody else has it.
    await slot.stop();
    slot = await takeSlot(database, context, name, ttlMs);
    context.log.warn({ slot: name, before, now: slot.number }, "a slot was lost, and is taken anew");
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
  if (!row) throw new Error(`All ${SLOTS} slots of "${name}" are taken.`);
  return row.n;
}
