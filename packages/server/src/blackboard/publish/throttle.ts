import { KhalaError } from "@khala/contracts";
import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { withTimeout } from "../../kit/timeout.ts";
import type { Board } from "../board.ts";
import type { Agent } from "../model/agent.ts";
import { ROUTER } from "../model/names.ts";

export interface ThrottleOptions {
  /** Open tasks of an org for one agent from which its publishing is slowed down; from `hard` on it is refused. */
  readonly soft: number;
  readonly hard: number;
  readonly agents: readonly Pick<Agent, "name" | "consumes">[];
  /** Whether a reader counts. A paused one lags on purpose. */
  readonly counts?: (reader: string) => boolean;
}

/** Backpressure for publishers when readers lag. Outputs of agents are exempt, because that would block work in flight. */
export interface Throttle {
  /**
   * Resolves when the org may publish artifacts of these types, usually at once. Rejects when an agent that consumes one of
   * them has too many of the org's tasks: its quota `waiting_tasks`. Other agents do not matter. The tasks of other orgs
   * only matter as a last resort, and then the answer is `overloaded`.
   */
  enter(org: string, types: ReadonlySet<string>): Promise<void>;
}

interface Lag {
  readonly reader: string;
  readonly lag: number;
  /** Whether these are tasks of the org alone. */
  readonly own: boolean;
}

/** The known lag of an org's tasks. */
interface Reading {
  lags: readonly Lag[];
  askedAt: number;
  answeredAt: number;
  asking: Promise<void> | undefined;
}

/** Lag is read at most this often, and only during publications. */
const FRESH_MS = 1_000;
/** Older lag is not trusted; publishers wait for a new reading. */
const STALE_MS = 5_000;
const LONGEST_WAIT_MS = 1_000;
const LONGEST_RETRY_MS = 30_000;
const MAX_ORGS = 1_000;
/** All orgs together may have this many times the tasks of one: the last resort. */
const ALL_ORGS = 10;

/** Opens the throttle. */
export function openThrottle(
  board: Pick<Board, "lag" | "waiting">,
  context: Pick<Context, "clock" | "log" | "quotas">,
  options: ThrottleOptions,
): Throttle {
  const { soft, hard, agents, counts = () => true } = options;
  if (!(soft >= 0 && hard > soft))
    throw new TypeError(
      "The lag at which publishing slows down must be below the lag at which it is refused.",
    );
  const { clock } = context;
  /** Least recently used first. */
  const readings = new Map<string, Reading>();
  const reject = context.quotas.add({
    name: "waiting_tasks",
    of: "open tasks for one agent",
    limit: hard,
    async inUse(org) {
      return Math.max(0, ...(await board.waiting(org)).values());
    },
    orgs: (limit) => [...readings.keys()].slice(-limit),
  });

  async function ask(org: string, reading: Reading): Promise<void> {
    reading.askedAt = clock.now();
    try {
      const all = sums(await board.lag());
      // Below the threshold no org is slowed down, so it need not be known whose tasks these are.
      const isLow = [...all.values()].every((lag) => lag < soft);
      reading.lags = isLow ? [] : lagsOf(all, await board.waiting(org));
      reading.answeredAt = clock.now();
    } catch (error) {
      context.log.warn(
        { err: (error as Error).message },
        "could not read the lag, so publishing is not throttled",
      );
    } finally {
      reading.asking = undefined;
    }
  }

  async function current(org: string): Promise<readonly Lag[]> {
    const reading = readings.get(org) ?? {
      lags: [],
      askedAt: Number.NEGATIVE_INFINITY,
      answeredAt: Number.NEGATIVE_INFINITY,
      asking: undefined,
    };
    readings.delete(org);
    readings.set(org, reading);
    if (readings.size > MAX_ORGS) readings.delete(readings.keys().next().value!);
    // A clock that was set back must not stop the reading.
    if (Math.abs(clock.now() - reading.askedAt) >= FRESH_MS) reading.asking ??= ask(org, reading);
    const stale = () => Math.abs(clock.now() - reading.answeredAt) >= STALE_MS;
    if (stale() && reading.asking) await withTimeout(clock, LONGEST_WAIT_MS, reading.asking, undefined);
    return stale() ? [] : reading.lags;
  }

  return {
    async enter(org, types) {
      const concerned = new Set([
        ROUTER,
        ...agents.filter(({ consumes }) => consumes.some((type) => types.has(type))).map(({ name }) => name),
      ]);
      let worst: Lag | undefined;
      for (const each of await current(org))
        if (concerned.has(each.reader) && counts(each.reader) && each.lag > (worst?.lag ?? 0)) worst = each;
      if (!worst || worst.lag < soft) return;
      if (worst.lag >= hard) {
        const retryMs = Math.round(Math.min(LONGEST_RETRY_MS, (FRESH_MS * worst.lag) / Math.max(1, hard)));
        if (!worst.own) throw overloaded(worst, hard, retryMs);
        const advice = `The agent "${worst.reader}" has ${worst.lag}. Try again later, or add workers.`;
        throw reject(org, retryMs, advice);
      }
      await sleep(clock, (LONGEST_WAIT_MS * (worst.lag - soft)) / (hard - soft));
    },
  };
}

function sums(lags: readonly PartitionLagJson[]): Map<string, number> {
  const byReader = new Map<string, number>();
  for (const { reader = "", lag = "0" } of lags)
    byReader.set(reader, (byReader.get(reader) ?? 0) + Number(lag));
  return byReader;
}

/** The org's tasks by agent, or the tenth of all orgs' where that is more. The router's lag is everybody's. */
function lagsOf(all: ReadonlyMap<string, number>, own: ReadonlyMap<string, number>): Lag[] {
  return [...all].map(([reader, lag]) => {
    if (reader === ROUTER) return { reader, lag, own: false };
    const ofOrg = own.get(reader) ?? 0;
    const share = Math.floor(lag / ALL_ORGS);
    return { reader, lag: Math.max(ofOrg, share), own: ofOrg >= share };
  });
}

function overloaded({ reader, lag }: Lag, hard: number, retry_after_ms: number): KhalaError {
  const who = reader === ROUTER ? "The router" : `The agent "${reader}"`;
  const message = `${who} is ${lag} behind; publishing is refused from ${hard} on. Try again later, or add workers.`;
  return new KhalaError("overloaded", message, { retry_after_ms });
}
