import { KhalaError } from "@khala/contracts";
import type { EventJson } from "@khala/contracts/conversation/v1";
import { notFound } from "../../access/access.ts";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { ConcurrencyQuota } from "../../kit/quota.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { withTimeout } from "../../kit/timeout.ts";
import { idKey } from "../conversation.ts";
import { Fenced, type Log, StreamGone } from "../log/log.ts";
import { questionEvents } from "../messages/question.ts";
import { resumePoint } from "../messages/resume_point.ts";
import type { ClaimedRun } from "../queue/admission.ts";
import { type ActiveRun, type AnswerDeps, answerTurn, keptMessages, type ResumedRun } from "./answer.ts";
import type { Leases } from "./leases.ts";
import { authorityEnd, failed, type RunOutcome, shortLine, type WaitingOutcome } from "./outcome.ts";
import { entryText, RunLog } from "./run_log.ts";
import type { RunReporter } from "./run_reporter.ts";
import { RunScope } from "./run_scope.ts";

export interface RunsOptions extends AnswerDeps {
  readonly log: Log;
  readonly leases: Leases;
  readonly reporter: RunReporter;
  readonly leaseMs: number;
  readonly maxRuns: number;
  /** The live runs of each org. */
  readonly quota: ConcurrencyQuota;
  /** Tells the other servers that there are runs to take over, or queued ones to start. */
  readonly wakeOthers: () => void;
  /** A run of the queue has begun. */
  readonly onDequeued: (run: ClaimedRun) => void;
}

/** The active runs of this server. They continue without any socket. */
export interface Runs extends Service {
  /** Takes a place for a run that is about to be claimed; throws when the server or the org has none left. */
  reserve(run: { readonly org: string; readonly runId: string }): void;
  /** Gives the place of a run back that was not claimed. */
  cancel(runId: string): void;
  /** Starts a claimed run in the background; resolves with its cursor when its start is durable. */
  begin(run: ClaimedRun): Promise<string>;
  /** Whether another server's run can continue here: its engine allows it, and this server accepts runs. */
  canResume(run: ClaimedRun): boolean;
  /** Continues a run of another server in the background; resolves when its resumption is durable. */
  resume(run: ClaimedRun, resumed: Omit<ResumedRun, "point">): Promise<string>;
  /** The cursor of a run once its start is durable; undefined when it failed or is not on this server. */
  beginning(runId: string): Promise<string | undefined>;
  /** Stops a run, if it is on this server. */
  stopRun(runId: string, reason: string): boolean;
  /** Aborts a run whose lease is lost: nothing more of it is written. */
  abandon(runId: string): void;
  /** Checks now whether a stop of the run was requested. */
  recheck(runId: string): void;
  /** Calls the listener with a run that waits and must end after all: some server has to end it. */
  onRecover(listener: (run: ClaimedRun) => void): void;
  /** Renews the leases; abandons lost runs and stops those with a requested stop. */
  renew(): Promise<void>;
  /** Takes no more runs, and leaves queued ones to other servers. Resolves when those under way have ended. */
  drain(): Promise<void>;
  /** Leaves the runs that can be resumed to other servers. Resolves when their engines have ended. */
  handOver(): Promise<void>;
  readonly size: number;
  /** False when the limit of runs, or the org's quota of them, is reached, or the server stops. */
  hasCapacity(org?: string): boolean;
  /** Throws when there is no place for a run of the org. */
  requireCapacity(org: string): void;
  /** The orgs that have reached their quota. */
  fullOrgs(): string[];
}

/** A run's log with its start, or its resumption, and the cursor before that. */
interface WrittenStart {
  readonly runLog: RunLog;
  readonly cursor: string;
}

interface StartedRun extends ActiveRun {
  readonly beginning: Promise<string | undefined>;
  done: Promise<void>;
}

/** How long a client waits for a log that does not answer. */
const START_TIMEOUT_MS = 5_000;
/** Includes the five seconds that an engine has to end after its signal aborts. */
const SHUTDOWN_TIMEOUT_MS = 8_000;
const SHUTTING_DOWN = failed(
  "server_lost",
  "The server is shutting down. Send the message again in a moment.",
);

/** Opens the runs. */
export function openRuns(context: Context, options: RunsOptions): Runs {
  const { clock, random, log: logger } = context;
  const { leases, reporter, metrics, log, quota } = options;
  const all = new Map<string, StartedRun>();
  /** The places of runs that are about to be claimed. */
  const reserved = new Map<string, () => void>();
  let toRecover: (run: ClaimedRun) => void = () => options.wakeOthers();
  let draining = false;
  let leaving = false;
  let stopping = false;

  function begin(run: ClaimedRun, resumed?: ResumedRun): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const active: StartedRun = {
      run,
      abort: new AbortController(),
      lost: new AbortController(),
      writable: true,
      resumable: undefined,
      beginning: promise.catch(() => undefined),
      done: Promise.resolve(),
    };
    const leave = reserved.get(run.runId) ?? quota.acquireAnyway(run.org);
    reserved.delete(run.runId);
    all.set(run.runId, active);
    // Claimed during the stop: ends like the others.
    if (leaving) leaveToOthers(active);
    else if (stopping) active.abort.abort(SHUTTING_DOWN);
    active.done = live(active, resumed, resolve, reject)
      .catch((error) =>
        logger.error({ err: error, run: run.runId }, "a run failed and is left for a takeover"),
      )
      .finally(() => {
        all.delete(run.runId);
        leave();
      });
    return promise;
  }

  async function live(
    active: StartedRun,
    resumed: ResumedRun | undefined,
    begun: (cursor: string) => void,
    refused: (error: unknown) => void,
  ): Promise<void> {
    const { run } = active;
    let runLog: RunLog;
    let cursor: string;
    try {
      ({ runLog, cursor } = await (resumed ? writeResumed(active, resumed) : writeStart(active)));
    } catch (thrown) {
      const error = thrown instanceof Fenced ? takenOver() : thrown;
      logger.warn({ err: (error as Error).message, run: run.runId }, "a run could not begin");
      await (resumed ? leases.release(run) : leases.startFailed(run)).catch((cause) =>
        logger.warn({ err: cause.message }, "a lease could not be released and will expire"),
      );
      return refused(error);
    }
    begun(cursor);
    if (run.dequeued) options.onDequeued(run);
    const attempt = resumed && { attempt: resumed.attempt, waited: resumed.waited };
    logger.info({ run: run.runId, conversation: run.convId, ...attempt }, "a run started");
    if (!resumed)
      reporter.report(run, "run.started", {
        title: shortLine(run.message.trim(), 80),
        audience: [run.subject],
      });
    const outcome = await answerTurn(context, options, active, runLog, resumed);
    await end(active, outcome, cursor);
  }

  /** Takes the unfinished step back. Nobody posts in between: see `adopt`. */
  async function writeResumed(active: StartedRun, resumed: ResumedRun): Promise<WrittenStart> {
    const { run, lost } = active;
    const { messages } = options;
    const { attempt, point } = resumed;
    const { runId, logName: stream, generation, fence } = run;
    const runLog = await RunLog.open(context, { log, stream, generation, fence });
    const kept = point.kept.map(({ message_id = "" }) => message_id);
    // With a position in this log, which may be a new one: its readers know from where on it has the run.
    const stored =
      (await messages.cutBack(run, kept)) &&
      (await messages.save(run, keptMessages(resumed), runLog.position));
    if (!stored) throw new Fenced("Another server has taken the run over.");
    const results = point.interrupted.map((tool_result) => ({ tool_result }));
    const events: EventJson[] = [{ run_resumed: { attempt, kept: point.kept } }, ...results];
    const entries = events.map((event) => entryText(runId, event));
    const written = { runLog, cursor: await runLog.append(entries, START_TIMEOUT_MS, lost.signal) };
    await storeStart(active, written);
    return written;
  }

  async function writeStart(active: StartedRun): Promise<WrittenStart> {
    const { run, lost } = active;
    const { runId, logName: stream, generation, fence, sender } = run;
    const now = new Date(clock.now()).toISOString();
    const entries = [
      entryText(runId, { run_started: { subject: sender, started_at: now } }),
      ...questionEvents(run).map((event) => entryText(runId, event)),
    ];
    const write = async () => {
      const runLog = await RunLog.open(context, { log, stream, generation, fence });
      return { runLog, cursor: await runLog.append(entries, START_TIMEOUT_MS, lost.signal) };
    };
    const written = await write().catch(async (error) => {
      if (!(error instanceof StreamGone)) throw error;
      if (await leases.isDeleted(run)) throw notFound("conversation", run.convId);
      // The stream has expired in between: create it again.
      return write().catch((cause) => {
        if (!(cause instanceof StreamGone)) throw cause;
        const message = "The conversation's log cannot be opened right now. Try again in a moment.";
        throw new KhalaError("unavailable", message, { retry_after_ms: 1_000 });
      });
    });
    await storeStart(active, written);
    return written;
  }

  async function storeStart({ run }: StartedRun, { runLog, cursor }: WrittenStart): Promise<void> {
    const { runId, logName: stream, generation } = run;
    try {
      const row = await leases.started(run, cursor, runLog.position);
      if (!row) {
        abandon(runId);
        // The conversation was deleted while the run started, and this has brought its log back.
        if (await leases.isDeleted(run)) await log.delete(stream, generation);
      } else if (row.stop) stopRun(runId, row.stop);
    } catch (error) {
      // The run is durable in the log; its row is updated at its end.
      logger.warn({ err: (error as Error).message, run: runId }, "a run's cursor was not stored");
    }
  }

  async function end(active: StartedRun, outcome: RunOutcome, cursor: string): Promise<void> {
    const { run } = active;
    if (outcome.kind === "lost") {
      metrics.runs.add(1, { outcome: "lost" });
      logger.warn({ run: run.runId, conversation: run.convId }, "a run was lost to another server");
      if (!active.writable) {
        await leases.release(run);
        options.wakeOthers();
      }
      return;
    }
    metrics.runs.add(1, { outcome: outcome.kind });
    if (outcome.kind === "waiting") return park(run, outcome);
    logger.info({ run: run.runId, conversation: run.convId, outcome: outcome.kind }, "a run ended");
    reporter.report(run, ...authorityEnd(outcome));
    const { next } = await stored(run, () => leases.finish(run, outcome, { next: !draining, cursor }));
    if (draining) options.wakeOthers();
    if (next)
      begin(next).catch((error) => logger.warn({ err: error.message }, "a queued run could not begin"));
  }

  /** Gives the run's lease up: nothing of a waiting run is left in memory. */
  async function park(run: ClaimedRun, { calls }: WaitingOutcome): Promise<void> {
    const waits = await stored(run, () => leases.park(run, calls));
    logger.info({ run: run.runId, conversation: run.convId, waits }, "a run waits for a decision");
    if (!waits) toRecover(run);
  }

  /** Stores the end in the run's row, which unblocks the conversation. Retries for the duration of the lease. */
  async function stored<T>(run: ClaimedRun, store: () => Promise<T>): Promise<T> {
    const deadline = clock.now() + options.leaseMs;
    for (let failures = 0; ; failures++) {
      try {
        return await store();
      } catch (error) {
        if (clock.now() >= deadline) throw error;
        const details = { err: (error as Error).message, run: run.runId };
        logger.warn(details, "the end of a run could not be stored; retrying");
        await sleep(clock, backoff(failures, random, { base: 100, cap: 2_000 }));
      }
    }
  }

  function stopRun(runId: string, reason: string): boolean {
    const active = all.get(runId);
    active?.abort.abort({ kind: "stopped", reason } satisfies RunOutcome);
    return active !== undefined;
  }

  function abandon(runId: string): void {
    const active = all.get(runId);
    active?.lost.abort();
    active?.abort.abort({ kind: "lost" } satisfies RunOutcome);
  }

  /** Leaves a run to another server. */
  function leaveToOthers(active: StartedRun): void {
    active.writable = false;
    abandon(active.run.runId);
  }

  async function renewRuns(held: readonly StartedRun[]): Promise<void> {
    const rows = await leases.renew(held.map(({ run }) => run));
    const ours = new Map(rows.map(({ runId, stop }) => [runId, stop]));
    for (const { run } of held) {
      const stop = ours.get(run.runId);
      if (stop === undefined) abandon(run.runId);
      else if (stop !== null) stopRun(run.runId, stop);
    }
  }

  // Sorted, so that two servers lock rows in the same order and cannot deadlock.
  const renew = () => renewRuns([...all.values()].sort((a, b) => (idKey(a.run) < idKey(b.run) ? -1 : 1)));

  const renewing = runLoop(context, "conversation leases", {
    wake: new Wake(),
    idleMs: options.leaseMs / 3,
    async step() {
      await renew();
      return false;
    },
  });

  /** Checks again after waiting, because a run may have been claimed in between. */
  async function allEnded(): Promise<void> {
    while (all.size > 0) await Promise.all([...all.values()].map((active) => active.done));
  }

  /** Of engines that are asked whether they can continue a run, and are not running it yet. */
  const asking = new RunScope(strayOfFactory, strayOfFactory);
  function strayOfFactory(error: unknown): void {
    logger.error({ err: error }, "an engine's factory failed after it was done");
  }

  const atCapacity = () => draining || all.size + reserved.size >= options.maxRuns;

  function takePlace(org: string): () => void {
    if (!atCapacity()) return quota.acquire(org);
    const message = "This server is at its limit of runs. Try again in a moment.";
    throw new KhalaError("overloaded", message, { retry_after_ms: 1_000 });
  }

  metrics.running.addCallback((result) => result.observe(all.size));

  return {
    reserve({ org, runId }) {
      reserved.set(runId, takePlace(org));
    },
    cancel(runId) {
      reserved.get(runId)?.();
      reserved.delete(runId);
    },
    begin: (run) => begin(run),
    canResume(run) {
      if (draining) return false;
      try {
        const { engine, release } = asking.enter(() => options.engines.checkOut(run));
        release();
        return engine.resumable === true;
      } catch (error) {
        logger.warn({ err: error, run: run.runId }, "a run cannot be resumed: its engine cannot be created");
        return false;
      }
    },
    resume: (run, resumed) => begin(run, { ...resumed, point: resumePoint(resumed.messages, resumed) }),
    beginning: async (runId) => all.get(runId)?.beginning,
    stopRun,
    abandon,
    onRecover(listener) {
      toRecover = listener;
    },
    recheck(runId) {
      const active = all.get(runId);
      if (!active) return;
      renewRuns([active]).catch((error) =>
        logger.debug({ err: error.message }, "a stop wakeup could not be checked; the next renewal does"),
      );
    },
    renew,
    drain() {
      draining = true;
      return allEnded();
    },
    async handOver() {
      leaving = true;
      // Without an engine yet, nothing is lost.
      const left = [...all.values()].filter(({ resumable }) => resumable !== false);
      for (const active of left) leaveToOthers(active);
      const ended = Promise.all(left.map(({ done }) => done));
      await withTimeout(clock, SHUTDOWN_TIMEOUT_MS, ended, undefined);
    },
    get size() {
      return all.size;
    },
    hasCapacity: (org) => !atCapacity() && (org === undefined || quota.hasRoom(org)),
    requireCapacity: (org) => takePlace(org)(),
    fullOrgs: () => quota.full(),
    async stop() {
      draining = true;
      stopping = true;
      for (const { abort } of all.values()) abort.abort(SHUTTING_DOWN);
      await withTimeout(clock, SHUTDOWN_TIMEOUT_MS, allEnded(), undefined);
      for (const runId of [...all.keys()]) abandon(runId);
      await renewing.stop();
    },
  };
}

/** This server paused for longer than its lease, before the run had begun. */
function takenOver(): KhalaError {
  const message = "The server was interrupted before the answer began. Send the message again.";
  return new KhalaError("unavailable", message, { retry_after_ms: 1_000 });
}
