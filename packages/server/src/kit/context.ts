import type { Logger } from "pino";
import type { Clock } from "./clock.ts";
import type { NewId, Random } from "./ids.ts";
import type { Quotas } from "./quota.ts";
import type { Telemetry } from "./telemetry.ts";

/** The dependencies of every part of the server: clock, randomness, ids, log, telemetry and quotas. Tests replace them. */
export interface Context {
  readonly clock: Clock;
  readonly random: Random;
  readonly newId: NewId;
  readonly log: Logger;
  readonly telemetry: Telemetry;
  readonly quotas: Quotas;
}
