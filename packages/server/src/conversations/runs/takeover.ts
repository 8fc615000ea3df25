import { topicForConv } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { parseCursor } from "../log/cursor.ts";
import { Fenced, type Log, type Position, StreamGone } from "../log/log.ts";
import type { ConversationMetrics } from "../metrics.ts";
import { readEntry } from "../timeline/timeline.ts";
import type { Announcer } from "./announcer.ts";
import type { Leases, LostRun, UntoldRun } from "./leases.ts";
import { authorityEnd, endEvent, failed, outcomeOf, SERVER_LOST, type WrittenOutcome } from "./outcome.ts";
import { entryText } from "./run_log.ts";
import type { Runs } from "./runs.ts";

export interface TakeoverOptions {
  readonly log: Log;
  readonly leases: Leases;
  readonly runs: Runs;
  readonly announcer: Announcer;
  readonly metrics: ConversationMetrics;
  readonly leaseMs: number;
}

/** Completes what servers that are gone have left behind. */
export interface Takeover extends Service {
  /** Ends the lost run of a conversation, and starts what waits in it. */
  recover(convId: string): Promise<void>;
  /** Starts what waits in a conversation in which nothing runs. */
  startWaiting(convId: string): Promise<void>;
  /** Does so for all conversations, a bounded number at a time; true when there may be more. */
  sweep(): Promise<boolean>;
}

const AT_ONCE = 50;
const PAGE = { entries: 500, bytes: 1 << 20 };

/** Opens the takeover and its sweeper. */
export function openTakeover(context: Context, options: TakeoverOptions): Takeover {
  const { log, leases, runs, announcer, metrics } = options;

  async function settle(lost: LostRun): Promise<void> {
    try {
      const outcome = await endInLog(log, lost);
      const { held, next } = await leases.finish(lost, outcome, { next: runs.room });
      if (!held) return;
      metrics.takeovers.add(1);
      context.log.warn(
        { run: lost.runId, conversation: lost.convId, outcome: outcome.kind },
        "a run of a server that is gone was ended",
      );
      announcer.announce(lost, ...authorityEnd(outcome));
      if (next) await runs.begin(next);
    } catch (error) {
      // Somebody else is at it.
      if (error instanceof Fenced) return;
      await leases.letGo(lost);
      throw error;
    }
  }

  async function startWaiting(convId: string): Promise<void> {
    if (!runs.room) return;
    const run = await leases.claimNext(convId);
    if (run) await runs.begin(run);
  }

  async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
    for (const result of await Promise.allSettled(items.map(work))) {
      if (result.status === "rejected")
        context.log.warn({ err: result.reason.message }, "a conversation could not be completed yet");
    }
  }

  /** Whoever ended it could not say so, or crashed before. An event that is there already counts once. */
  function tellAgain(run: UntoldRun): void {
    announcer.announce(run, "run.started", {});
    announcer.announce(run, ...authorityEnd(endOf(run)));
  }

  async function sweep(): Promise<boolean> {
    // What is ours and was only late is not lost.
    await runs.renew();
    const lost = await leases.seize(AT_ONCE);
    await each(lost, settle);
    const waiting = runs.room ? await leases.waiting(AT_ONCE) : [];
    await each(waiting, startWaiting);
    const untold = await leases.untold(AT_ONCE);
    for (const run of untold) tellAgain(run);
    return lost.length === AT_ONCE;
  }

  const sweeping = runLoop(context, "conversation sweeper", {
    wake: new Wake(),
    idleMs: options.leaseMs,
    step: sweep,
  });

  return {
    async recover(convId) {
      for (const lost of await leases.seize(1, convId)) await settle(lost);
    },
    startWaiting,
    sweep,
    stop: () => sweeping.stop(),
  };
}

/** The end of a run in its log: the one that its server has still written, or else the one that is written now. */
async function endInLog(log: Log, lost: LostRun): Promise<WrittenOutcome> {
  const stream = topicForConv(lost.convId);
  if (!(await shutOut(log, stream, lost.fence))) return SERVER_LOST;
  const found = await search(log, stream, lost);
  if (found.end) return found.end;
  if (!found.begun) return SERVER_LOST;
  try {
    const entry = entryText(lost.runId, endEvent(SERVER_LOST));
    await log.append(stream, [entry], { fence: lost.fence, epoch: found.epoch });
  } catch (error) {
    // A log that is gone needs no end.
    if (!(error instanceof StreamGone)) throw error;
  }
  return SERVER_LOST;
}

/** From here on the lost server cannot write, so that what is found next is all there is. False when there is no log. */
async function shutOut(log: Log, stream: string, fence: bigint): Promise<boolean> {
  const [bounds] = await log.heads([stream]);
  if (!bounds) return false;
  try {
    const notice = entryText("", { status: { text: "The server that was answering is gone." } });
    await log.append(stream, [notice], { fence, epoch: bounds.epoch });
    return true;
  } catch (error) {
    if (error instanceof StreamGone) return false;
    throw error;
  }
}

function endOf({ status, error }: UntoldRun): WrittenOutcome {
  if (status === "finished") return { kind: "finished", finished: {} };
  return status === "stopped" ? { kind: "stopped", reason: "stopped" } : failed("engine_failed", error ?? "");
}

/** Looks for the run's end from where it began. One without a cursor may not have begun at all. */
async function search(
  log: Log,
  stream: string,
  { runId, cursor: text }: LostRun,
): Promise<{ epoch: string; begun: boolean; end?: WrittenOutcome }> {
  const cursor = text === null ? undefined : parseCursor(text, "cursor");
  let position: Position = cursor ?? { seq: 0n, time: 0 };
  let begun = cursor !== undefined;
  for (;;) {
    const page = await log.read(stream, position, PAGE);
    if (!page || (cursor && page.epoch !== cursor.epoch)) return { epoch: "", begun: false };
    for (const entry of page.entries) {
      const { runId: of, event } = readEntry(entry);
      if (of !== runId) continue;
      begun = true;
      const end = outcomeOf(event);
      if (end) return { epoch: page.epoch, begun, end };
    }
    const last = page.entries.at(-1);
    if (!last) return { epoch: page.epoch, begun };
    position = last;
  }
}
