import { KhalaError } from "@khala/contracts";
import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { withTimeout } from "../../kit/timeout.ts";
import type { Board } from "../board.ts";

export interface ThrottleOptions {
  /** Queued tasks of one reader from which publishing is slowed down; from `hard` on it is refused. */
  readonly soft: number;
  readonly hard: number;
  /** Whether a reader counts. A paused one lags on purpose. */
  readonly counts?: (reader: string) => boolean;
}

/** Backpressure for publishers when readers lag. Outputs of agents are exempt, because that would block work in flight. */
export interface Throttle {
  /** Resolves when the caller may publish, usually at once. Rejects when a reader lags too far. */
  enter(): Promise<void>;
}

interface Lag {
  readonly reader: string;
  readonly lag: number;
}

/** Lag is read at most this often, and only while somebody publishes. */
const FRESH_MS = 1_000;
/** Older lag is not trusted; publishers wait for a new reading. */
const STALE_MS = 5_000;
const LONGEST_WAIT_MS = 1_000;
const LONGEST_RETRY_MS = 30_000;

/** Opens the throttle. */
export function openThrottle(
  board: Pick<Board, "lag">,
  context: Pick<Context, "clock" | "log">,
  options: ThrottleOptions,
): Throttle {
  const { soft, hard, counts = () => true } = options;
  if (!(soft >= 0 && hard > soft))
    throw new TypeError("Publishing is slowed at a lower lag than it is refused at.");
  const { clock } = context;
  let worst: Lag | undefined;
  let askedAt = Number.NEGATIVE_INFINITY;
  let answeredAt = Number.NEGATIVE_INFINITY;
  let asking: Promise<void> | undefined;

  async function ask(): Promise<void> {
    askedAt = clock.now();
    try {
      worst = worstOf(await board.lag(), counts);
      answeredAt = clock.now();
    } catch (error) {
      context.log.warn(
        { err: (error as Error).message },
        "could not read the lag, so publishing is not throttled",
      );
    } finally {
      asking = undefined;
    }
  }

  async function current(): Promise<Lag | undefined> {
    // A clock that was set back must not stop the reading.
    if (Math.abs(clock.now() - askedAt) >= FRESH_MS) asking ??= ask();
    const stale = () => Math.abs(clock.now() - answeredAt) >= STALE_MS;
    if (stale() && asking) await withTimeout(clock, LONGEST_WAIT_MS, asking, undefined);
    return stale() ? undefined : worst;
  }

  return {
    async enter() {
      const lag = await current();
      if (!lag || lag.lag < soft) return;
      if (lag.lag >= hard) throw refusal(lag, hard);
      await sleep(clock, (LONGEST_WAIT_MS * (lag.lag - soft)) / (hard - soft));
    },
  };
}

function worstOf(
  partitions: readonly PartitionLagJson[],
  counts: (reader: string) => boolean,
): Lag | undefined {
  const byReader = new Map<string, number>();
  for (const { reader = "", lag = "0" } of partitions)
    if (counts(reader)) byReader.set(reader, (byReader.get(reader) ?? 0) + Number(lag));
  let worst: Lag | undefined;
  for (const [reader, lag] of byReader) if (!worst || lag > worst.lag) worst = { reader, lag };
  return worst;
}

function refusal({ reader, lag }: Lag, hard: number): KhalaError {
  const retryMs = Math.round(Math.min(LONGEST_RETRY_MS, (FRESH_MS * lag) / Math.max(1, hard)));
  const who = reader === "router" ? "The router" : `The agent "${reader}"`;
  const message = `${who} is ${lag} behind, and publishing is refused from ${hard}. Try again later, or add workers.`;
  return new KhalaError("overloaded", message, { retry_after_ms: retryMs });
}
