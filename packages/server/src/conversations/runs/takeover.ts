import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { ConversationId } from "../conversation.ts";
import { parseCursor } from "../log/cursor.ts";
import { Fenced, type Log, type Position, StreamGone } from "../log/log.ts";
import type { MessageStore } from "../messages/message_store.ts";
import { recordOrphan } from "../messages/orphan.ts";
import type { ConversationMetrics } from "../metrics.ts";
import { readEntry } from "../timeline/timeline.ts";
import type { Leases, OrphanedRun, UnreportedRun } from "./leases.ts";
import { authorityEnd, endEvent, failed, outcomeOf, SERVER_LOST, type StoredOutcome } from "./outcome.ts";
import { entryText } from "./run_log.ts";
import type { RunReporter } from "./run_reporter.ts";
import type { Runs } from "./runs.ts";

export interface TakeoverOptions {
  readonly log: Log;
  readonly messages: MessageStore;
  readonly leases: Leases;
  readonly runs: Runs;
  readonly reporter: RunReporter;
  readonly metrics: ConversationMetrics;
  readonly leaseMs: number;
}

/** Takes over the runs of lost servers. */
export interface Takeover extends Service {
  /** Ends the orphaned run of a conversation, and starts its next queued run. */
  recover(conversation: ConversationId): Promise<void>;
  /** Starts the next queued run of a conversation without an active run. */
  startQueued(conversation: ConversationId): Promise<void>;
  /** Takes over a batch of any conversations; true when there may be more. */
  sweep(): Promise<boolean>;
  /** Sweeps soon: another server has released runs. */
  wake(): void;
}

const BATCH_SIZE = 50;
/** A sweep in the millisecond of the expiry would come too early. */
const EXPIRY_SLACK_MS = 5;
const MIN_SWEEP_MS = 200;
const PAGE = { entries: 500, bytes: 1 << 20 };

/** Opens the takeover, with a periodic sweep. */
export function openTakeover(context: Context, options: TakeoverOptions): Takeover {
  const { log, leases, runs, reporter, metrics, messages } = options;

  async function settle(lost: OrphanedRun): Promise<void> {
    try {
      const outcome = await endInLog(log, messages, lost);
      const { held, next } = await leases.finish(lost, outcome, { next: runs.hasCapacity(lost.org) });
      if (!held) return;
      metrics.takeovers.add(1);
      context.log.warn(
        { run: lost.runId, conversation: lost.convId, outcome: outcome.kind },
        "an orphaned run was ended",
      );
      reporter.report(lost, ...authorityEnd(outcome));
      if (next) await runs.begin(next);
    } catch (error) {
      // Another server has taken it over.
      if (error instanceof Fenced) return;
      await leases.release(lost);
      throw error;
    }
  }

  async function startQueued(conversation: ConversationId): Promise<void> {
    if (!runs.hasCapacity(conversation.org)) return;
    const run = await leases.claimNext(conversation);
    if (run) await runs.begin(run);
  }

  async function forEach<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
    for (const result of await Promise.allSettled(items.map(work))) {
      if (result.status === "rejected")
        context.log.warn({ err: result.reason.message }, "a conversation could not be taken over yet");
    }
  }

  /** Reports the run again: its server failed to, or crashed before. Appending is idempotent. */
  function reportAgain(run: UnreportedRun): void {
    reporter.report(run, "run.started", {});
    reporter.report(run, ...authorityEnd(endOf(run)));
  }

  async function sweep(): Promise<boolean> {
    // Renew first, so that this server's own late leases are not claimed.
    await runs.renew();
    const lost = await leases.claimExpired(BATCH_SIZE);
    await forEach(lost, settle);
    // An org that has no place left must not keep the others from theirs.
    const waiting = runs.hasCapacity() ? await leases.queuedConversations(BATCH_SIZE, runs.fullOrgs()) : [];
    await forEach(waiting, startQueued);
    const unreported = await leases.unreported(BATCH_SIZE);
    for (const run of unreported) reportAgain(run);
    return lost.length === BATCH_SIZE;
  }

  const wake = new Wake();
  const { leaseMs } = options;
  let idleMs = leaseMs;
  const sweeping = runLoop(context, "conversation sweeper", {
    wake,
    get idleMs() {
      return idleMs;
    },
    async step() {
      if (await sweep()) return true;
      // Live servers renew their leases long before this. The minimum bounds the retries of a run that cannot be settled.
      const nextMs = (await leases.nextExpiry()) ?? leaseMs;
      idleMs = Math.min(Math.max(nextMs + EXPIRY_SLACK_MS, MIN_SWEEP_MS), leaseMs);
      return false;
    },
  });

  return {
    async recover(conversation) {
      for (const lost of await leases.claimExpired(1, conversation)) await settle(lost);
    },
    startQueued,
    sweep,
    wake: () => wake.wake(),
    stop: () => sweeping.stop(),
  };
}

/** The end of a run in its log: written by its server, or else written now. */
async function endInLog(log: Log, messages: MessageStore, lost: OrphanedRun): Promise<StoredOutcome> {
  const { logName: stream } = lost;
  const epoch = await fenceOff(log, lost);
  if (epoch === undefined) return SERVER_LOST;
  await recordOrphan(messages, log, lost, epoch);
  const found = await findEnd(log, epoch, lost);
  if (found.end) return found.end;
  if (!found.begun) return SERVER_LOST;
  try {
    const entry = entryText(lost.runId, endEvent(SERVER_LOST));
    await log.append(stream, [entry], { fence: lost.fence, epoch });
  } catch (error) {
    // A log that is gone needs no end.
    if (!(error instanceof StreamGone)) throw error;
  }
  return SERVER_LOST;
}

/** Raises the log's fencing token, so that the lost server cannot write any more. Returns the epoch; undefined when the conversation was deleted. */
async function fenceOff(
  log: Log,
  { logName: stream, generation, fence }: OrphanedRun,
): Promise<string | undefined> {
  try {
    // Created if it does not exist: the lost server may still be about to write the run's start. The log may belong to
    // another conversation by now: then this fails.
    const { epoch } = await log.open(stream, generation);
    const notice = entryText("", { status: { text: "The server that was answering is gone." } });
    await log.append(stream, [notice], { fence, epoch });
    return epoch;
  } catch (error) {
    if (error instanceof StreamGone) return undefined;
    throw error;
  }
}

function endOf({ status, error }: UnreportedRun): StoredOutcome {
  if (status === "finished") return { kind: "finished", finished: {} };
  return status === "stopped" ? { kind: "stopped", reason: "stopped" } : failed("engine_failed", error ?? "");
}

/**
 * Searches the log for the run's end. A run without a cursor may not have started; one with a cursor was promised to a
 * client, and gets its end in the log that there is, even if the cursor is of one that was lost.
 */
async function findEnd(
  log: Log,
  epoch: string,
  { runId, logName: stream, cursor: text }: OrphanedRun,
): Promise<{ begun: boolean; end?: StoredOutcome }> {
  const cursor = text === null ? undefined : parseCursor(text, "cursor");
  let position: Position = cursor?.epoch === epoch ? cursor : { seq: 0n, time: 0 };
  let begun = cursor !== undefined;
  for (;;) {
    const page = await log.read(stream, position, PAGE);
    if (page?.epoch !== epoch) return { begun: false };
    for (const entry of page.entries) {
      const { runId: of, event } = readEntry(entry);
      if (of !== runId) continue;
      begun = true;
      const end = outcomeOf(event);
      if (end) return { begun, end };
    }
    const last = page.entries.at(-1);
    if (!last) return { begun };
    position = last;
  }
}
