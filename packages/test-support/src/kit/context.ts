import { pino } from "pino";
import { type Clock, systemClock } from "../../../server/src/kit/clock.ts";
import type { Context } from "../../../server/src/kit/context.ts";
import { type Random, uuidv7 } from "../../../server/src/kit/ids.ts";
import { openQuotas } from "../../../server/src/kit/quota.ts";
import { openTelemetry } from "../../../server/src/kit/telemetry.ts";

export interface TestContextOptions {
  readonly clock?: Clock;
  readonly seed?: number;
  /** Gets each line of every warning. */
  readonly onWarning?: (line: string) => void;
}

/** The machine's clock with delays of a second or more five times as long: a hang still times out, a busy machine does not. */
export const patientClock: Clock = {
  ...systemClock,
  after: (ms, then) => systemClock.after(ms < 1_000 ? ms : 5 * ms, then),
};

/** A quiet context: the machine's clock unless another is given, and seeded randomness. */
export async function testContext({
  clock = systemClock,
  seed = 1,
  onWarning,
}: TestContextOptions = {}): Promise<Context> {
  const log = onWarning ? pino({ level: "warn" }, { write: onWarning }) : pino({ level: "silent" });
  const telemetry = await openTelemetry();
  const quotas = openQuotas(telemetry.meter);
  return { clock, random: seeded(seed), newId: uuidv7(clock), log, telemetry, quotas };
}

/** Seeded randomness in [0, 1) (mulberry32). */
export function seeded(seed: number): Random {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
