import { KhalaError } from "@khala/contracts";
import type { PendingCallJson } from "@khala/contracts/conversation/v1";
import { isDataError } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { ConversationId } from "../conversation.ts";
import { parseCursor } from "../log/cursor.ts";
import { Fenced, type Log, type Position, StreamGone } from "../log/log.ts";
import { messageOf } from "../messages/message_row.ts";
import type { MessageStore } from "../messages/message_store.ts";
import { recordOrphan } from "../messages/orphan.ts";
import type { ConversationMetrics } from "../metrics.ts";
import type { ClaimedRun } from "../queue/admission.ts";
import { readEntry } from "../timeline/timeline.ts";
import { engineFailure } from "./failures.ts";
import type { Leases, OrphanedRun, UnreportedRun } from "./leases.ts";
import {
  authorityEnd,
  endEvent,
  type FailedOutcome,
  failed,
  outcomeOf,
  SERVER_LOST,
  type StoredOutcome,
} from "./outcome.ts";
import { entryText, RELOAD_ENTRY } from "./run_log.ts";
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
  /** Tells the other servers that there are runs to take over. */
  readonly wakeOthers: () => void;
}

/** Takes over the runs of lost servers. */
export interface Takeover extends Service {
  /** Ends the orphaned run of a conversation, and starts its next queued run. */
  recover(conversation: ConversationId): Promise<void>;
  /** Continues or ends a run that has waited. When this server cannot, another one does. */
  goOn(conversation: ConversationId): Promise<void>;
  /** Starts the next queued run of a conversation without an active run. */
  startQueued(conversation: ConversationId): Promise<void>;
  /** Takes over a batch of any conversations; true when there may be more. */
  sweep(): Promise<boolean>;
  /** Sweeps soon: another server has released runs. */
  wake(): void;
}

const BATCH_SIZE = 50;
/** The limit of resumptions. A run that ends every server that runs it must not end them all. */
const MAX_RESUMES = 3;
/** A sweep in the millisecond of the expiry would come too early. */
const EXPIRY_SLACK_MS = 5;
const MIN_SWEEP_MS = 200;
const PAGE = { entries: 500, bytes: 1 << 20 };

/** Opens the takeover, with a periodic sweep. */
export function openTakeover(context: Context, options: TakeoverOptions): Takeover {
  const { log, leases, runs, reporter, metrics, messages } = options;

  async function settle(lost: OrphanedRun): Promise<void> {
    try {
      if (lost.waited && lost.stop === null && !runs.hasCapacity()) throw noCapacity();
      const epoch = await (lost.waited ? openLog(log, lost) : fenceOff(log, lost));
      let outcome: StoredOutcome = SERVER_LOST;
      if (epoch !== undefined) {
        const refused = lost.waited ? undefined : await record(lost, epoch);
        const found = lost.waited ? WAITED : await findEnd(log, epoch, lost);
        if (!found.end && !refused && (await continueRun(lost, found))) return;
        outcome = found.end ?? (await writeEnd(log, epoch, lost, found, refused));
      }
      const { held, next } = await leases.finish(lost, outcome, { next: runs.hasCapacity(lost.org) });
      if (!held) return;
      if (!lost.waited) metrics.takeovers.add(1);
      context.log.warn(
        { run: lost.runId, conversation: lost.convId, outcome: outcome.kind },
        lost.waited ? "a waiting run was ended" : "an orphaned run was ended",
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

  /** Stores the run's messages. Returns a failure if the database refuses them: it would refuse them every time. */
  async function record(lost: OrphanedRun, epoch: string): Promise<FailedOutcome | undefined> {
    try {
      await recordOrphan(messages, log, lost, epoch);
      return undefined;
    } catch (error) {
      if (!isDataError(error)) throw error;
      return engineFailure(context, lost, error, "the database refuses the messages of a run");
    }
  }

  /** Resumes the run, or starts it if its server never did. False when it has to end. */
  async function continueRun(lost: OrphanedRun, found: FoundRun): Promise<boolean> {
    if (found.waits && lost.stop === null) {
      // If it is to stop since, its lease has ended, and the next sweep ends it.
      await leases.park(lost, found.waits);
      return true;
    }
    // A run without a cursor was never accepted. Its sender got an error, or sends again.
    if (lost.stop !== null || (lost.cursor === null && !found.begun)) return false;
    const rows = await messages.ofRun(lost);
    const question = await messages.question(lost);
    if (!question) return false;
    const run: ClaimedRun = { ...lost, ...question };
    const placed = rows.some((row) => row.message_id === lost.messageId && row.log_epoch !== null);
    const started = found.seen || placed;
    const { waited } = lost;
    const attempt = started && !waited ? lost.resumed + 1 : lost.resumed;
    if (attempt > MAX_RESUMES || (started ? !runs.canResume(run) : !runs.hasCapacity(run.org))) return false;
    if (!(await leases.adopt(lost, attempt))) throw new Fenced("Another server has taken the run over.");
    if (!waited) {
      metrics.takeovers.add(1);
      context.log.warn({ run: run.runId, conversation: run.convId, attempt }, "an orphaned run is continued");
    }
    if (started) await runs.resume(run, { attempt, waited, messages: rows.map(messageOf) });
    else await runs.begin(run);
    return true;
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

  async function recover(conversation: ConversationId): Promise<void> {
    const expired = await leases.claimExpired(1, conversation);
    for (const lost of expired) await settle(lost);
    // Somebody may hold its row for a moment, such as a decision that is sent twice: the sweep tries again soon.
    if (expired.length === 0) wake.wake();
  }

  async function goOn(conversation: ConversationId): Promise<void> {
    try {
      await recover(conversation);
    } catch (error) {
      const details = { err: (error as Error).message, conversation: conversation.convId };
      context.log.warn(details, "a waiting run could not continue on this server");
      options.wakeOthers();
    }
  }

  runs.onRecover((run) => void goOn(run));
  return {
    recover,
    goOn,
    startQueued,
    sweep,
    wake: () => wake.wake(),
    stop: () => sweeping.stop(),
  };
}

/** Writes the end of a run that its server has not written: this failure, if there is one. */
async function writeEnd(
  log: Log,
  epoch: string,
  lost: OrphanedRun,
  { begun }: FoundRun,
  failure: FailedOutcome | undefined,
): Promise<StoredOutcome> {
  const outcome: StoredOutcome =
    failure ?? (lost.stop === null ? SERVER_LOST : { kind: "stopped", reason: lost.stop });
  if (!begun) return outcome;
  try {
    const entry = entryText(lost.runId, endEvent(outcome));
    await log.append(lost.logName, [entry], { fence: lost.fence, epoch });
  } catch (error) {
    // A missing log needs no end.
    if (!(error instanceof StreamGone)) throw error;
  }
  return outcome;
}

/** The part of a run in a log. */
interface FoundRun {
  /** Whether it has, or owes to a client, its start. */
  readonly begun: boolean;
  /** Whether it has an entry of the run. */
  readonly seen: boolean;
  readonly end?: StoredOutcome;
  /** The tool calls that it waits for, if its server was lost before that was stored. */
  readonly waits?: readonly PendingCallJson[];
}

/** A run that waited is complete in the table. */
const WAITED: FoundRun = { begun: true, seen: true };

/** Opens the log of a run without a server. Returns the epoch; undefined when the conversation was deleted. */
async function openLog(log: Log, { logName, generation }: OrphanedRun): Promise<string | undefined> {
  try {
    return (await log.open(logName, generation)).epoch;
  } catch (error) {
    if (error instanceof StreamGone) return undefined;
    throw error;
  }
}

/** Raises the log's fencing token, so that the lost server cannot write any more. Returns the epoch; undefined when the conversation was deleted. */
async function fenceOff(
  log: Log,
  { logName: stream, generation, fence, cursor }: OrphanedRun,
): Promise<string | undefined> {
  try {
    // Created if it does not exist: the lost server may still be about to write the run's start. The log may belong to
    // another conversation by now: then this fails.
    const { epoch } = await log.open(stream, generation);
    const notice = entryText("", { status: { text: "The server that was answering is gone." } });
    const isNew = cursor !== null && parseCursor(cursor, "cursor").epoch !== epoch;
    await log.append(stream, isNew ? [notice, RELOAD_ENTRY] : [notice], { fence, epoch });
    return epoch;
  } catch (error) {
    if (error instanceof StreamGone) return undefined;
    throw error;
  }
}

function noCapacity(): KhalaError {
  const message = "This server cannot continue the run. Another server will.";
  return new KhalaError("overloaded", message, { retry_after_ms: 1_000 });
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
): Promise<FoundRun> {
  const cursor = text === null ? undefined : parseCursor(text, "cursor");
  let position: Position = cursor?.epoch === epoch ? cursor : { seq: 0n, time: 0 };
  let begun = cursor !== undefined;
  let seen = false;
  let waits: readonly PendingCallJson[] | undefined;
  for (;;) {
    const page = await log.read(stream, position, PAGE);
    if (page?.epoch !== epoch) return { begun: false, seen: false };
    for (const entry of page.entries) {
      const { runId: of, event } = readEntry(entry);
      if (of !== runId) continue;
      begun = true;
      seen = true;
      if (event.run_waiting) waits = event.run_waiting.calls ?? [];
      else if (event.run_resumed) waits = undefined;
      const end = outcomeOf(event);
      if (end) return { begun, seen, end };
    }
    const last = page.entries.at(-1);
    if (!last) return { begun, seen, ...(waits && { waits }) };
    position = last;
  }
}
