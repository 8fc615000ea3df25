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
