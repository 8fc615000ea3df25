import { KhalaError } from "@khala/contracts";
import type {
  EventJson,
  PendingCallJson,
  RunFinishedJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import { type Attributes, SpanStatusCode } from "@opentelemetry/api";
import type { Context } from "../../kit/context.ts";
import { orgAttributes, traceContext, traceparent } from "../../kit/telemetry.ts";
import type { CheckedOutEngine, EngineCache } from "../engines/engine_cache.ts";
import { runEngineTurn } from "../engines/engine_turn.ts";
import { type Publish, publishWithFiles } from "../files/event_files.ts";
import type { Files } from "../files/files.ts";
import { Fenced, StreamGone } from "../log/log.ts";
import type { MessageStore } from "../messages/message_store.ts";
import { questionOf } from "../messages/question.ts";
import { RecordedLog } from "../messages/recorded_log.ts";
import type { ResumePoint } from "../messages/resume_point.ts";
import { LeaseLost, RunRecorder } from "../messages/run_recorder.ts";
import type { ConversationMetrics } from "../metrics.ts";
import type { ConversationOptions } from "../options.ts";
import type { ClaimedRun } from "../queue/admission.ts";
import { messageIdOf } from "../timeline/timeline.ts";
import { messagesOf } from "../timeline/transcript.ts";
import { readHistory } from "../turns/history.ts";
import { openTurn } from "../turns/open_turn.ts";
import { pendingCalls } from "../waiting/awaited_calls.ts";
import { engineFailure, toolFailure } from "./failures.ts";
import { endEvent, type FailedOutcome, failed, type RunOutcome, type WaitingOutcome } from "./outcome.ts";
import type { RunLog } from "./run_log.ts";
import { RunPublisher } from "./run_publisher.ts";
import { RunScope } from "./run_scope.ts";

export interface AnswerDeps {
  readonly engines: EngineCache;
  readonly messages: MessageStore;
  readonly files: Files;
  readonly metrics: ConversationMetrics;
  readonly runTimeoutMs: number;
  readonly runMaxBytes: number;
  readonly deltaWindowMs: number;
  readonly deltaChars: number;
  readonly publish: ConversationOptions["publish"];
}

/** A run that is being answered. */
export interface ActiveRun {
  readonly run: ClaimedRun;
  /** Ends the run; the reason is a RunOutcome. */
  readonly abort: AbortController;
  /** Aborts when the lease is lost: from then on nothing is written. */
  readonly lost: AbortController;
  /** False when this server cannot complete the run: a takeover has to. */
  writable: boolean;
  /** Whether the engine that answers can continue on another server; undefined before there is one. */
  resumable: boolean | undefined;
}

/** A run that this server resumes. */
export interface ResumedRun {
  readonly attempt: number;
  /** Whether it has waited for a person, and its server was not lost. */
  readonly waited: boolean;
  /** The messages of the run as they were stored, the user's included. */
  readonly messages: readonly TranscriptMessageJson[];
  /** What is kept of them. */
  readonly point: ResumePoint;
}

/** How long a failing append is retried before the run is given up. */
const APPEND_TIMEOUT_MS = 15_000;

/**
 * Answers the turn of a run whose start, or resumption, is in the log: appends the engine's events and one end event. Returns
 * the outcome.
 */
export async function answerTurn(
  context: Context,
  deps: AnswerDeps,
  active: ActiveRun,
  runLog: RunLog,
  resumed?: ResumedRun,
): Promise<RunOutcome> {
  const { run, abort, lost } = active;
  const loseRun = () => {
    lost.abort();
    abort.abort({ kind: "lost" } satisfies RunOutcome);
  };
  const recorder = new RunRecorder(context, {
    store: deps.messages,
    run,
    messages: resumed
      ? keptMessages(resumed)
      : messagesOf([{ runId: run.runId, event: { message: questionOf(run) } }]),
    onLost: loseRun,
  });
  const recordedLog = new RecordedLog(runLog, recorder);
  const publisher = new RunPublisher(context.clock, {
    runId: run.runId,
    windowMs: deps.deltaWindowMs,
    chars: deps.deltaChars,
    append: (entries) => recordedLog.append(entries, APPEND_TIMEOUT_MS, lost.signal),
    onAppended: (ms) => deps.metrics.appendMs.record(ms),
    onFailure(error) {
      active.writable = isTakenOver(error);
      if (!active.writable) context.log.error({ err: error, run: run.runId }, "a run could not be written");
      loseRun();
    },
  });
  const cancelTimeout = context.clock.after(deps.runTimeoutMs, () => {
    const seconds = Math.round(deps.runTimeoutMs / 1_000);
    abort.abort(
      failed("timeout", `The answer took longer than ${seconds} s and was ended. Send the message again.`),
    );
  });
  const span = startRunSpan(context, run);
  const outcome = await runEngine(context, deps, active, publisher, span.trace, resumed);
  span.end(outcome);
  cancelTimeout();
  const end = (how: RunOutcome) => appendEnd(context, active, publisher, recorder, how);
  try {
    return await end(outcome).catch((error) => {
      if (isTooLarge(error)) return end(failed("too_large", error.message));
      throw error;
    });
  } catch (error) {
    // The messages could not be stored: a takeover stores them, and then writes the end.
    if (!lost.signal.aborted && !(error instanceof LeaseLost)) active.writable = false;
    return { kind: "lost" };
  } finally {
    recorder.close();
  }
}

/** Stores the messages, and appends the end event last; or nothing, when the lease is lost. */
async function appendEnd(
  context: Context,
  active: ActiveRun,
  publisher: RunPublisher,
  recorder: RunRecorder,
  outcome: RunOutcome,
): Promise<RunOutcome> {
  if (outcome.kind === "lost" || active.lost.signal.aborted) {
    await publisher.abandon();
    return { kind: "lost" };
  }
  await publisher.flush();
  await recorder.flush();
  const calls = outcome.kind === "finished" ? pendingCalls(recorder.messages()) : [];
  const actual = calls.length > 0 ? waitFor(context, active, calls) : outcome;
  await publisher.end(actual.kind === "waiting" ? { run_waiting: { calls: [...calls] } } : endEvent(actual));
  return actual;
}

/** The run waits, if its engine can continue later. */
function waitFor(
  context: Context,
  { run, resumable }: ActiveRun,
  calls: readonly PendingCallJson[],
): WaitingOutcome | FailedOutcome {
  if (resumable) return { kind: "waiting", calls };
  const message =
    "The engine asked for an approval or a client's output, but is not resumable. Set `resumable: true`, and continue after `turn.resume`.";
  return engineFailure(context, run, new Error(message));
}

/** Runs the engine until it ends, fails or is stopped. */
async function runEngine(
  context: Context,
  deps: AnswerDeps,
  active: ActiveRun,
  publisher: RunPublisher,
  trace: string | null,
  resumed: ResumedRun | undefined,
): Promise<RunOutcome> {
  const { run, abort } = active;
  const { engines, files, runMaxBytes } = deps;
  const { signal } = abort;
  let checkedOut: CheckedOutEngine | undefined;
  let discard = true;
  let broken = false;
  let bytes = 0;
  const { log } = context;
  const { runId: id } = run;
  const scope = new RunScope(
    (error) => {
      broken = true;
      abort.abort(engineFailure(context, run, error));
    },
    (error) => log.error({ err: error, run: id }, "an error after the end of a run was not caught"),
  );
  const push = publishWithFiles(files, run, (event: EventJson) => {
    bytes += event.text_delta ? Buffer.byteLength(event.text_delta.text ?? "") : JSON.stringify(event).length;
    if (bytes > runMaxBytes)
      throw new KhalaError(
        "payload_too_large",
        `The answer has more than ${runMaxBytes} bytes and was ended.`,
      );
    return publisher.push(event);
  });
  try {
    const history = await readHistory(deps.messages, run);
    if (signal.aborted) return signal.reason as RunOutcome;
    checkedOut = scope.enter(() => engines.checkOut(run));
    active.resumable = checkedOut.engine.resumable === true;
    const messageId = growingMessage(resumed) ?? context.newId();
    const publish = publishOwn(deps.messages, run, [messageId, ...idsOf(resumed?.point.messages)], push);
    const turn = openTurn(context, {
      ...{ run, history, signal, trace, files, publish, publishOnBoard: deps.publish },
      messageId,
      ...(resumed && { resume: { attempt: resumed.attempt, messages: resumed.point.messages } }),
      reportError: (error) => toolFailure(context, run, error),
    });
    const { finished, abandoned } = await runEngineTurn({
      engine: checkedOut.engine,
      turn,
      signal,
      clock: context.clock,
      enter: (work) => scope.enter(work),
      publish,
    });
    discard = abandoned;
    return signal.aborted ? (signal.reason as RunOutcome) : { kind: "finished", finished };
  } catch (error) {
    if (signal.aborted) {
      // Throwing on abort is correct behaviour of an engine: keep it cached.
      discard = false;
      return signal.reason as RunOutcome;
    }
    return isTooLarge(error) ? failed("too_large", error.message) : engineFailure(context, run, error);
  } finally {
    scope.end();
    checkedOut?.release(discard || broken);
  }
}

/** Publishes events of the run's own messages. An id that is another message's fails the run: that one would be changed on devices. */
function publishOwn(
  messages: Pick<MessageStore, "has">,
  run: ClaimedRun,
  known: readonly string[],
  publish: Publish,
): Publish {
  const own = new Set(known);
  return (event) => {
    const id = messageIdOf(event);
    if (id === undefined || own.has(id)) return publish(event);
    return messages.has(run, id).then((taken) => {
      if (taken)
        throw new Error(
          `The engine sent an event with the message_id ${id}, which another message of the conversation has. Leave it out, or send one that is unique.`,
        );
      own.add(id);
      return publish(event);
    });
  };
}

function idsOf(messages: readonly TranscriptMessageJson[] = []): string[] {
  return messages.flatMap(({ message_id }) => message_id ?? []);
}

/** The user's message, and what is kept of the answers. */
export function keptMessages({ messages, point }: ResumedRun): TranscriptMessageJson[] {
  return structuredClone([...messages.filter(({ role }) => role === "user"), ...point.messages]);
}

/** The id of the message that grew when the run was interrupted: it continues. */
function growingMessage(resumed: ResumedRun | undefined): string | undefined {
  const grows = ({ role, status }: TranscriptMessageJson) => role !== "user" && status === "streaming";
  return resumed?.messages.findLast(grows)?.message_id;
}

function isTooLarge(error: unknown): error is KhalaError {
  return error instanceof KhalaError && error.code === "payload_too_large";
}

/** Whether another server has taken the run over, or the conversation was deleted. */
function isTakenOver(error: unknown): boolean {
  return error instanceof Fenced || error instanceof StreamGone;
}

/** The span of a run, within the trace of its request. */
interface RunSpan {
  /** The traceparent for what the run calls; null without a trace. */
  readonly trace: string | null;
  end(outcome: RunOutcome): void;
}

/** Starts the span. The run's id is the correlation id of what it publishes. */
function startRunSpan({ telemetry, clock }: Context, run: ClaimedRun): RunSpan {
  const span = telemetry.tracer.startSpan(
    "invoke_agent",
    { startTime: clock.now(), attributes: { "gen_ai.operation.name": "invoke_agent" } },
    traceContext(run.trace),
  );
  if (span.isRecording())
    span.setAttributes({
      correlation_id: run.runId,
      "khala.run_id": run.runId,
      "gen_ai.conversation.id": run.convId,
      ...orgAttributes(run.org),
    });
  return {
    trace: traceparent(span) ?? run.trace,
    end(outcome) {
      span.setAttribute("khala.outcome", outcome.kind);
      if (outcome.kind === "failed") {
        span.setAttribute("error.type", outcome.code);
        span.setStatus({ code: SpanStatusCode.ERROR, message: outcome.message });
      }
      if (outcome.kind === "finished") span.setAttributes(usageAttributes(outcome.finished));
      span.end(clock.now());
    },
  };
}

/** The model's usage, by the names of OpenTelemetry's conventions for generative AI. */
function usageAttributes({ reason, usage }: RunFinishedJson): Attributes {
  const { input_tokens, output_tokens } = usage ?? {};
  return {
    ...(reason && { "gen_ai.response.finish_reasons": [reason] }),
    ...(input_tokens !== undefined && { "gen_ai.usage.input_tokens": input_tokens }),
    ...(output_tokens !== undefined && { "gen_ai.usage.output_tokens": output_tokens }),
  };
}
