import { KhalaError } from "@khala/contracts";
import type { EventJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Context } from "../../kit/context.ts";
import type { Turn } from "../engines/engine.ts";
import type { EngineInUse, Engines } from "../engines/engine_cache.ts";
import { runEngineTurn, untilAborted } from "../engines/engine_turn.ts";
import type { Cursor } from "../log/cursor.ts";
import { Fenced, StreamGone } from "../log/log.ts";
import type { ConversationMetrics } from "../metrics.ts";
import type { ConversationOptions } from "../options.ts";
import type { ClaimedRun } from "../store.ts";
import type { HeldReader, Readers } from "../timeline/readers.ts";
import { endEvent, engineFailure, failed, type Outcome } from "./outcome.ts";
import type { RunLog } from "./run_log.ts";
import { RunPublisher } from "./run_publisher.ts";
import { startRunSpan } from "./run_span.ts";

export interface AnswerDeps {
  readonly engines: Engines;
  readonly readers: Readers;
  readonly metrics: ConversationMetrics;
  readonly runTimeoutMs: number;
  readonly runMaxBytes: number;
  readonly deltaWindowMs: number;
  readonly deltaChars: number;
  readonly publish?: ConversationOptions["publish"];
}

/** A run while it is answered. */
export interface AnsweredRun {
  readonly run: ClaimedRun;
  /** Ends the run; the reason is an Outcome. */
  readonly abort: AbortController;
  /** Aborted when the run is no longer ours: from then on nothing is written. */
  readonly lost: AbortController;
  /** False when the log could not be written, so that somebody has to complete it. */
  writable: boolean;
}

/** How long a log that does not answer is tried again before the run is given up. */
const APPEND_WITHIN_MS = 15_000;
const HISTORY = { messages: 200, bytes: 1 << 20 };

/** Answers a turn that began after `start`: the engine's events go to the log, and one end after them. Answers that end. */
export async function answerTurn(
  context: Context,
  deps: AnswerDeps,
  active: AnsweredRun,
  runLog: RunLog,
  start: Cursor,
): Promise<Outcome> {
  const { run, abort, lost } = active;
  const publisher = new RunPublisher(context.clock, {
    runId: run.runId,
    windowMs: deps.deltaWindowMs,
    chars: deps.deltaChars,
    append: (entries) => runLog.append(entries, APPEND_WITHIN_MS, lost.signal),
    onAppended: (ms) => deps.metrics.appendMs.record(ms),
    onFailure(error) {
      active.writable = isTaken(error);
      if (!active.writable) context.log.error({ err: error, run: run.runId }, "a run could not be written");
      lost.abort();
      abort.abort({ kind: "lost" } satisfies Outcome);
    },
  });
  const cancelTimeout = context.clock.after(deps.runTimeoutMs, () => {
    const seconds = Math.round(deps.runTimeoutMs / 1_000);
    abort.abort(
      failed("timeout", `The answer took longer than ${seconds} s and was ended. Send the message again.`),
    );
  });
  const span = startRunSpan(context, run);
  const outcome = await listen(context, deps, active, publisher, start, span.trace);
  span.end(outcome);
  cancelTimeout();
  try {
    return await close(publisher, outcome, lost.signal);
  } catch (error) {
    if (isTooLarge(error)) return await close(publisher, failed("too_large", error.message), lost.signal);
    return { kind: "lost" };
  }
}

/** Writes the end after everything else; or nothing more, when the run is no longer ours. */
async function close(publisher: RunPublisher, outcome: Outcome, lost: AbortSignal): Promise<Outcome> {
  if (outcome.kind === "lost" || lost.aborted) {
    await publisher.abandon();
    return { kind: "lost" };
  }
  await publisher.end(endEvent(outcome));
  return outcome;
}

/** Lets the engine speak until it ends, fails or is stopped. */
async function listen(
  context: Context,
  deps: AnswerDeps,
  { run, abort: { signal } }: AnsweredRun,
  publisher: RunPublisher,
  start: Cursor,
  trace: string | null,
): Promise<Outcome> {
  const { engines, readers, runMaxBytes } = deps;
  let held: HeldReader | undefined;
  let used: EngineInUse | undefined;
  let discard = true;
  let bytes = 0;
  const publish = (event: EventJson) => {
    bytes += event.text_delta ? Buffer.byteLength(event.text_delta.text ?? "") : JSON.stringify(event).length;
    if (bytes > runMaxBytes)
      throw new KhalaError(
        "payload_too_large",
        `The answer has more than ${runMaxBytes} bytes and was ended.`,
      );
    return publisher.push(event);
  };
  try {
    // Before a conversation's first entry nothing was said.
    if (start.seq > 0n) held = await readers.acquire(run.convId);
    const history = held ? await historyOf(held, run, start, signal) : [];
    if (signal.aborted) return signal.reason as Outcome;
    const { convId, org, subject, runId, message } = run;
    used = engines.use({ convId, org, subject });
    const { publish: onBoard } = deps;
    const turn: Turn = {
      ...{ convId, org, subject, runId, messageId: context.newId(), message, history },
      ...(trace !== null && { trace }),
      ...(onBoard && { publish: (drafts) => onBoard({ org, subject, trace }, drafts) }),
    };
    const { finished, abandoned } = await runEngineTurn({
      engine: used.engine,
      turn,
      signal,
      clock: context.clock,
      publish,
    });
    discard = abandoned;
    return signal.aborted ? (signal.reason as Outcome) : { kind: "finished", finished };
  } catch (error) {
    if (signal.aborted) {
      // An engine that answers the signal with an error is a good one.
      discard = false;
      return signal.reason as Outcome;
    }
    context.log.warn({ err: error, run: run.runId }, "an engine failed");
    return isTooLarge(error) ? failed("too_large", error.message) : engineFailure(error);
  } finally {
    used?.release(discard);
    held?.release();
  }
}

/** What was said before this turn: the newest of it. */
async function historyOf(
  { reader }: HeldReader,
  { runId }: ClaimedRun,
  start: Cursor,
  signal: AbortSignal,
): Promise<TranscriptMessageJson[]> {
  if (reader.epoch !== start.epoch || reader.head.seq < start.seq)
    await untilAborted(reader.refresh(), signal);
  const transcript = await reader.transcript();
  const before = transcript.last(HISTORY.messages + 2).filter(({ run_id }) => run_id !== runId);
  let bytes = 0;
  let from = before.length;
  while (from > Math.max(0, before.length - HISTORY.messages)) {
    bytes += JSON.stringify(before[from - 1]).length;
    if (bytes > HISTORY.bytes) break;
    from--;
  }
  return before.slice(from);
}

function isTooLarge(error: unknown): error is KhalaError {
  return error instanceof KhalaError && error.code === "payload_too_large";
}

/** True when somebody else has the conversation now, or nobody. */
function isTaken(error: unknown): boolean {
  return error instanceof Fenced || error instanceof StreamGone;
}
