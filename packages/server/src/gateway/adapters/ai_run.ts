import { KhalaError } from "@khala/contracts";
import type { EventJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Caller } from "../../access/viewer.ts";
import type { ChatCommand, ConversationPlane } from "../../conversations/plane.ts";
import { endsRun } from "../../conversations/timeline/timeline.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { inServerSpan, orgAttributes } from "../../kit/telemetry.ts";

/** A run, and the position in the log where following begins. */
export interface FollowedRun {
  readonly caller: Caller;
  readonly convId: string;
  readonly runId: string;
  readonly after: string;
  /** Whether it has begun there. */
  readonly begun: boolean;
  /** Whether it waits for a decision: nothing follows. */
  readonly waits?: boolean;
}

/** A run that is joined in the middle, with its messages so far. */
export interface JoinedRun extends FollowedRun {
  readonly messages: readonly TranscriptMessageJson[];
}

/** After this long without an event a keep-alive is sent, and the run is checked. */
const QUIET_MS = 10_000;
const ACTIVE: ReadonlySet<string | undefined> = new Set(["queued", "running"]);

/** Starts a run, or finds the one that the same key has started. `parent` is the traceparent of the request. */
export async function startRun(
  context: Context,
  conversations: ConversationPlane,
  caller: Caller,
  command: ChatCommand,
  parent?: string,
): Promise<FollowedRun> {
  const span = { name: "chat", attributes: orgAttributes(caller.org), parent };
  return inServerSpan(context.telemetry, span, async (traced) => {
    const { run_id, cursor } = await conversations.chat(caller, { ...command, ...traced });
    return { caller, convId: command.convId, runId: run_id ?? "", after: cursor ?? "", begun: false };
  });
}

/** Joins the active run; undefined when there is none, or the conversation is not the caller's. */
export async function joinRun(
  conversations: ConversationPlane,
  caller: Caller,
  convId: string,
): Promise<JoinedRun | undefined> {
  try {
    const { run, cursor = "", messages = [] } = await conversations.state(caller, convId);
    if (!run?.run_id || !ACTIVE.has(run.status)) return undefined;
    // It may have ended while the log was read, and its end may be before the cursor.
    const now = await conversations.run(caller, convId);
    if (now?.run_id !== run.run_id || !ACTIVE.has(now.status)) return undefined;
    const said = messages.filter(({ run_id }) => run_id === run.run_id);
    const begun = run.status === "running";
    return { caller, convId, runId: run.run_id, after: cursor, begun, messages: said };
  } catch (error) {
    if (error instanceof KhalaError && error.code === "not_found") return undefined;
    throw error;
  }
}

/**
 * The events of a run up to its end, or until it waits; undefined as a keep-alive while it is silent. Events that belong to no run are part
 * of the active one. Throws when the log cannot be read; ends early when the signal aborts.
 */
export async function* followRun(
  { clock }: Context,
  conversations: Pick<ConversationPlane, "follow" | "run">,
  { caller, convId, runId, after, begun, waits = false }: FollowedRun,
  signal: AbortSignal,
): AsyncGenerator<EventJson | undefined> {
  if (waits) return;
  const leaving = new AbortController();
  const until = AbortSignal.any([signal, leaving.signal]);
  const events = conversations.follow(caller, convId, after, until)[Symbol.asyncIterator]();
  let started = begun;
  let missedEnd = 0;
  let next: ReturnType<typeof events.next> | undefined;
  try {
    for (;;) {
      next ??= events.next();
      const waiting = new AbortController();
      const quiet = sleep(clock, QUIET_MS, AbortSignal.any([until, waiting.signal])).then(() => undefined);
      const result = await Promise.race([next, quiet]).finally(() => waiting.abort());
      if (signal.aborted) return;
      if (!result) {
        missedEnd = (await isOver()) ? missedEnd + 1 : 0;
        // Its end may be on its way, but not for that long.
        if (missedEnd > 1) throw lostEnd();
        yield undefined;
        continue;
      }
      next = undefined;
      if (result.done) throw lostEnd();
      const { runId: of, event } = result.value;
      if (of === runId && event.run_started) started = true;
      if (of !== runId && (of !== "" || !started)) continue;
      yield event;
      if (of === runId && (endsRun({ event }) || event.run_waiting)) return;
    }
  } catch (error) {
    // A listener that has left needs no error.
    if (!signal.aborted) throw error;
  } finally {
    leaving.abort();
    next?.catch(() => undefined);
    await events.return?.();
  }

  /** Whether the run ended without our seeing it. */
  async function isOver(): Promise<boolean> {
    const run = await conversations.run(caller, convId, runId);
    return !run || !ACTIVE.has(run.status);
  }
}

function lostEnd(): KhalaError {
  return new KhalaError(
    "unavailable",
    "The end of this answer is no longer available. Load the conversation again.",
  );
}
