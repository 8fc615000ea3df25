import { topicForConv } from "@khala/contracts";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { parseCursor } from "../log/cursor.ts";
import { type Log, StreamGone } from "../log/log.ts";
import type { ClaimedRun } from "../store.ts";
import type { Announcer } from "./announcer.ts";
import { type AnswerDeps, type AnsweredRun, answerTurn } from "./answer.ts";
import type { Leases } from "./leases.ts";
import { authorityEnd, failed, type Outcome, readable, type WrittenOutcome } from "./outcome.ts";
import { entryText, RunLog } from "./run_log.ts";

export interface RunsOptions extends AnswerDeps {
  readonly log: Log;
  readonly leases: Leases;
  readonly announcer: Announcer;
  readonly leaseMs: number;
  readonly maxRuns: number;
}

/** The runs of this server. They live until they end, whoever listens. */
export interface Runs extends Service {
  /** Begins a run that was claimed; answers its cursor when its beginning is durable. It goes on in the background. */
  begin(run: ClaimedRun): Promise<string>;
  /** The cursor of a run of this server once its beginning is durable; undefined when that failed or it is not here. */
  beginning(runId: string): Promise<string | undefined>;
  /** Stops a run, if it is here. */
  stopRun(runId: string, reason: string): boolean;
  /** Aborts a run that somebody else ends, if it is here: nothing more of it is written. */
  lose(runId: string): void;
  /** Looks at once whether a run of this server is to be stopped. */
  recheck(runId: string): void;
  /** Says that the runs are still ours, and finds out which are not and which are to be stopped. */
  renew(): Promise<void>;
  readonly size: number;
  /** False when no more may be begun. */
  readonly room: boolean;
}

interface Active extends AnsweredRun {
  readonly beginning: Promise<string | undefined>;
  done: Promise<void>;
}

/** How long a client waits for a log that does not answer. */
const BEGIN_WITHIN_MS = 5_000;
/** An engine that ignores the signal takes five seconds of these. */
const SHUT_DOWN_WITHIN_MS = 8_000;
const SHUTTING_DOWN = failed(
  "server_lost",
  "The server is shutting down. Send the message again in a moment.",
);

/** Opens the runs. */
export function openRuns(context: Context, options: RunsOptions): Runs {
  const { clock, random, log: logger } = context;
  const { leases, announcer, metrics, log } = options;
  const all = new Map<string, Active>();
  let stopping = false;

  function begin(run: ClaimedRun): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const active: Active = {
      run,
      abort: new AbortController(),
      lost: new AbortController(),
      writable: true,
      beginning: promise.catch(() => undefined),
      done: Promise.resolve(),
    };
    all.set(run.runId, active);
    // One that was claimed in the moment of the shutdown ends as all the others do.
    if (stopping) active.abort.abort(SHUTTING_DOWN);
    active.done = live(active, resolve, reject)
      .catch((error) => logger.error({ err: error, run: run.runId }, "a run was left to be taken over"))
      .finally(() => all.delete(run.runId));
    return promise;
  }

  async function live(
    active: Active,
    begun: (cursor: string) => void,
    refused: (error: unknown) => void,
  ): Promise<void> {
    const { run } = active;
    let runLog: RunLog;
    let cursor: string;
    try {
      ({ runLog, cursor } = await writeBeginning(active));
    } catch (error) {
      logger.warn({ err: (error as Error).message, run: run.runId }, "a run could not begin");
      await leases
        .notStarted(run)
        .catch((cause) => logger.warn({ err: cause.message }, "a lease runs out by itself"));
      return refused(error);
    }
    begun(cursor);
    logger.info({ run: run.runId, conversation: run.convId }, "a run started");
    announcer.announce(run, "run.started", {
      title: readable(run.message.trim(), 80),
      audience: [run.subject],
    });
    const outcome = await answerTurn(context, options, active, runLog, parseCursor(cursor, "cursor"));
    await end(active, outcome, cursor);
  }

  async function writeBeginning(active: Active): Promise<{ runLog: RunLog; cursor: string }> {
    const { run, lost } = active;
    const { runId, subject, message, messageId } = run;
    const now = new Date(clock.now()).toISOString();
    const entries = [
      entryText(runId, { run_started: { subject, started_at: now } }),
      entryText(runId, { message: { message_id: messageId, role: "user", text: message, created_at: now } }),
    ];
    const write = async () => {
      const runLog = await RunLog.open(context, { log, stream: topicForConv(run.convId), fence: run.fence });
      return { runLog, cursor: await runLog.append(entries, BEGIN_WITHIN_MS, lost.signal) };
    };
    const written = await write().catch((error) => {
      // Deleted between the two: another one is made.
      if (error instanceof StreamGone) return write();
      throw error;
    });
    try {
      const row = await leases.started(run, written.runLog.epoch, written.cursor);
      if (!row) lose(runId);
      else if (row.stop) stopRun(runId, row.stop);
    } catch (error) {
      // The run is durable in the log; its row is completed at its end.
      logger.warn({ err: (error as Error).message, run: runId }, "a run's cursor was not stored");
    }
    return written;
  }

  async function end(active: Active, outcome: Outcome, cursor: string): Promise<void> {
    const { run } = active;
    if (outcome.kind === "lost") {
      metrics.runs.add(1, { outcome: "lost" });
      logger.warn({ run: run.runId, conversation: run.convId }, "a run was lost: another server ends it");
      if (!active.writable) await leases.letGo(run);
      return;
    }
    metrics.runs.add(1, { outcome: outcome.kind });
    logger.info({ run: run.runId, conversation: run.convId, outcome: outcome.kind }, "a run ended");
    announcer.announce(run, ...authorityEnd(outcome));
    const { next } = await finish(run, outcome, cursor);
    if (next)
      begin(next).catch((error) => logger.warn({ err: error.message }, "a queued run could not begin"));
  }

  /** The end is in the log. Until the row knows as well, nothing else can run: it is tried for as long as the lease is ours. */
  async function finish(run: ClaimedRun, outcome: WrittenOutcome, cursor: string) {
    const deadline = clock.now() + options.leaseMs;
    for (let failures = 0; ; failures++) {
      try {
        return await leases.finish(run, outcome, { next: !stopping, cursor });
      } catch (error) {
        if (clock.now() >= deadline) throw error;
        logger.warn({ err: (error as Error).message, run: run.runId }, "the end of a run is stored later");
        await sleep(clock, backoff(failures, random, { base: 100, cap: 2_000 }));
      }
    }
  }

  function stopRun(runId: string, reason: string): boolean {
    const active = all.get(runId);
    active?.abort.abort({ kind: "stopped", reason } satisfies Outcome);
    return active !== undefined;
  }

  function lose(runId: string): void {
    const active = all.get(runId);
    active?.lost.abort();
    active?.abort.abort({ kind: "lost" } satisfies Outcome);
  }

  async function renewThese(held: readonly Active[]): Promise<void> {
    const rows = await leases.renew(held.map(({ run }) => run));
    const ours = new Map(rows.map(({ runId, stop }) => [runId, stop]));
    for (const { run } of held) {
      const stop = ours.get(run.runId);
      if (stop === undefined) lose(run.runId);
      else if (stop !== null) stopRun(run.runId, stop);
    }
  }

  // In one order everywhere, so that two servers never wait for each other's rows.
  const renew = () => renewThese([...all.values()].sort((a, b) => (a.run.convId < b.run.convId ? -1 : 1)));

  const renewing = runLoop(context, "conversation leases", {
    wake: new Wake(),
    idleMs: options.leaseMs / 3,
    async step() {
      await renew();
      return false;
    },
  });

  metrics.running.addCallback((result) => result.observe(all.size));

  return {
    begin,
    beginning: async (runId) => all.get(runId)?.beginning,
    stopRun,
    lose,
    recheck(runId) {
      const active = all.get(runId);
      if (!active) return;
      renewThese([active]).catch((error) =>
        logger.debug({ err: error.message }, "a wakeup was not followed; the renewal is"),
      );
    },
    renew,
    get size() {
      return all.size;
    },
    get room() {
      return !stopping && all.size < options.maxRuns;
    },
    async stop() {
      stopping = true;
      for (const { abort } of all.values()) abort.abort(SHUTTING_DOWN);
      const ended = new AbortController();
      const enough = sleep(clock, SHUT_DOWN_WITHIN_MS, ended.signal).then(() => true);
      // Again, because one that was being claimed may have come meanwhile.
      while (all.size > 0) {
        const done = Promise.all([...all.values()].map((active) => active.done)).then(() => false);
        if (await Promise.race([done, enough])) break;
      }
      ended.abort();
      for (const runId of [...all.keys()]) lose(runId);
      await renewing.stop();
    },
  };
}
