import { Cron } from "croner";
import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Schedule } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import { derivedId } from "../model/derived_id.ts";
import { openSetAside, type SetAside } from "../observe/set_aside.ts";
import type { Sweep } from "../waiting/sweep.ts";
import { outboxValues } from "./outbox.ts";

/** A validated schedule. */
export interface CheckedSchedule extends Schedule {
  /** The last firing at or before `now`. */
  last(now: number): number | undefined;
  /** The first firing after `now`. */
  next(now: number): number | undefined;
}

export interface CronOptions {
  readonly schedules: readonly CheckedSchedule[];
  /** Creates the artifact of a firing, with this id. If it throws, nothing is published and the next firing tries again. */
  readonly make: (schedule: Schedule, id: string) => Promise<Artifact> | Artifact;
  readonly outbox: Pick<Sweep, "wake">;
  readonly setAside?: SetAside;
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
/** The longest timer: clocks are adjusted, and machines sleep. */
const LONGEST_WAIT_MS = 60_000;
/** When a schedule that could not be fired is tried again. */
const RETRY_MS = 1_000;
const LOOP = "board schedules";

/** Validates schedules when they are defined. A TypeError names the invalid one. */
export function checkSchedules(schedules: readonly Schedule[]): CheckedSchedule[] {
  const names = new Set<string>();
  return schedules.map((schedule) => {
    const { name, cron: pattern, timezone = "UTC" } = schedule;
    if (!NAME.test(name))
      throw new TypeError(`"${name}" is not a valid name for a schedule. Use letters, digits and . _ : -`);
    if (names.has(name)) throw new TypeError(`Two schedules have the name "${name}". Rename one of them.`);
    names.add(name);
    const cron = parse(name, pattern, timezone);
    return {
      ...schedule,
      // Times are whole seconds, and the parser's "before" excludes the time that it is given.
      last: (now) => cron.previousRuns(1, new Date((Math.floor(now / 1_000) + 1) * 1_000))[0]?.getTime(),
      next: (now) => cron.nextRun(new Date(now))?.getTime(),
    };
  });
}

function parse(name: string, pattern: string, timezone: string): Cron {
  // The parser also accepts a date, which is not a pattern.
  if (![5, 6].includes(pattern.trim().split(/\s+/).length))
    throw new TypeError(
      `The schedule "${name}" needs five or six fields, such as "0 7 * * 1-5", not "${pattern}".`,
    );
  try {
    const cron = new Cron(pattern, { timezone, paused: true });
    if (cron.nextRun(new Date())) return cron;
  } catch (error) {
    const reason = (error as Error).message;
    throw new TypeError(`The schedule "${name}" with "${pattern}" in ${timezone} cannot be read: ${reason}`, {
      cause: error,
    });
  }
  throw new TypeError(`The schedule "${name}" with "${pattern}" never runs.`);
}

/** The id of a firing: the same on every server. */
export function firingId(name: string, at: number): string {
  const time = at.toString(16).padStart(12, "0");
  return derivedId(`${time.slice(0, 8)}-${time.slice(8)}-`, `cron:${name}:${at}`);
}

/**
 * Fires schedules, once per time, however many servers run. If firings were missed while no server ran, the last one
 * fires at the next start. A new or changed schedule begins with its next time.
 */
export function startCron(database: Database, context: Context, options: CronOptions): Service {
  const { schedules, make, outbox, setAside = openSetAside(context) } = options;
  const wake = new Wake();
  /** The last known firing of each schedule, by any server. */
  let fired: Map<string, number> | undefined;
  let cancelTimer: (() => void) | undefined;

  async function step(): Promise<boolean> {
    cancelTimer?.();
    fired ??= await known(database, schedules, context.clock.now());
    const now = context.clock.now();
    let retryAt = Number.POSITIVE_INFINITY;
    for (const schedule of schedules) {
      const at = schedule.last(now);
      if (at === undefined || at <= (fired.get(schedule.name) ?? now)) continue;
      try {
        if (await fire(schedule, at)) outbox.wake();
        fired.set(schedule.name, at);
        setAside.succeeded(LOOP, schedule.org, schedule.name);
      } catch (error) {
        setAside.failed(LOOP, schedule.org, schedule.name, error);
        retryAt = now + RETRY_MS;
      }
    }
    const times = schedules.flatMap((schedule) => schedule.next(now) ?? []);
    times.push(retryAt);
    const wait = Math.min(...times) - context.clock.now();
    if (wait < LONGEST_WAIT_MS) cancelTimer = context.clock.after(Math.max(0, wait), () => wake.wake());
    return false;
  }

  /** Returns whether this server fired it. */
  async function fire(schedule: CheckedSchedule, at: number): Promise<boolean> {
    const artifact = await made(schedule, at);
    if (!artifact) return false;
    const rows = await database.query({
      name: "board_schedule_fire",
      text: `WITH fired AS (
          UPDATE runtime.board_schedules SET fired_at = $9 WHERE name = $8 AND fired_at < $9 RETURNING 1
        )
        INSERT INTO runtime.board_outbox (kind, ref, org_id, correlation_id, body, due_at, not_before)
        SELECT $1::text, $2::text, $3::text, $4::text, $5::json, $6::timestamptz, $7::timestamptz FROM fired
        ON CONFLICT DO NOTHING RETURNING 1`,
      values: [
        ...outboxValues({ kind: "artifact", body: artifact }, new Date(context.clock.now())),
        schedule.name,
        new Date(at),
      ],
    });
    return rows.length > 0;
  }

  async function made(schedule: CheckedSchedule, at: number): Promise<Artifact | undefined> {
    try {
      return await make(schedule, firingId(schedule.name, at));
    } catch (error) {
      const facts = {
        err: (error as Error).message,
        schedule: schedule.name,
        at: new Date(at).toISOString(),
      };
      context.log.error(facts, "a schedule published nothing: its artifact is invalid");
      return undefined;
    }
  }

  if (schedules.length === 0) return { stop: async () => {} };
  const loop = runLoop(context, LOOP, { step, wake, idleMs: LONGEST_WAIT_MS });
  return {
    async stop() {
      await loop.stop();
      cancelTimer?.();
    },
  };
}

async function known(
  database: Database,
  schedules: readonly Schedule[],
  now: number,
): Promise<Map<string, number>> {
  const rows = await database.query<{ name: string; fired: Date }>({
    name: "board_schedules_known",
    text: `INSERT INTO runtime.board_schedules AS s (name, rule, fired_at)
      SELECT name, rule, $3::timestamptz FROM unnest($1::text[], $2::text[]) AS given (name, rule) ORDER BY name
      ON CONFLICT (name) DO UPDATE SET rule = excluded.rule,
        fired_at = CASE WHEN s.rule = excluded.rule THEN s.fired_at ELSE excluded.fired_at END
      RETURNING name, fired_at AS fired`,
    values: [
      schedules.map(({ name }) => name),
      schedules.map(({ cron, timezone = "UTC" }) => `${cron} ${timezone}`),
      new Date(now),
    ],
  });
  return new Map(rows.map(({ name, fired }) => [name, fired.getTime()]));
}
