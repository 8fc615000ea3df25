import type { Logger } from "pino";
import type { Clock } from "./clock.ts";
import type { NewId, Random } from "./ids.ts";
import type { Telemetry } from "./telemetry.ts";

/** What every room is given from outside: time, chance, ids, and where to report. */
export interface Context {
  readonly clock: Clock;
  readonly random: Random;
  readonly newId: NewId;
  readonly log: Logger;
  readonly telemetry: Telemetry;
}
