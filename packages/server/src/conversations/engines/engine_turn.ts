import { fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { type EventJson, EventSchema, type RunFinishedJson } from "@khala/contracts/conversation/v1";
import type { Clock } from "../../kit/clock.ts";
import { isId, ROLES } from "../conversation.ts";
import { messageIdOf } from "../timeline/timeline.ts";
import type { Engine, EngineEvent, Turn } from "./engine.ts";

/** The time that an engine has to end after its signal aborts. */
const ABANDON_AFTER_MS = 5_000;
const ABANDONED = Symbol("abandoned");

export interface EngineTurnOptions {
  readonly engine: Engine;
  readonly turn: Turn;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Calls functions of the engine. */
  readonly enter?: <T>(work: () => T) => T;
  /** Publishes an event. A returned promise is backpressure: the engine waits for it. */
  readonly publish: (event: EventJson) => Promise<void> | undefined;
}

/** The end of a turn. `abandoned`: the engine ignored the signal and must not be used again. */
export interface EngineTurnEnd {
  readonly finished: RunFinishedJson;
  readonly abandoned: boolean;
}

/** Runs an engine for one turn. Throws what the engine throws. */
export async function runEngineTurn(options: EngineTurnOptions): Promise<EngineTurnEnd> {
  const { engine, turn, signal, clock, publish, enter = (work) => work() } = options;
  const events = enter(() => engine.run(turn, signal)[Symbol.asyncIterator]());
  const leave = () => enter(() => events.return?.());
  // One promise per step: racing with a promise that lives as long as the run would retain every step.
  let giveUp = () => {};
  let abandoned = false;
  let cancelTimer = () => {};
  const step = <T>(work: Promise<T> | undefined): Promise<T | typeof ABANDONED | undefined> =>
    new Promise((resolve, reject) => {
      if (abandoned) return resolve(ABANDONED);
      giveUp = () => resolve(ABANDONED);
      Promise.resolve(work).then(resolve, reject);
    });
  const onAbort = () => {
    cancelTimer = clock.after(ABANDON_AFTER_MS, () => {
      abandoned = true;
      giveUp();
    });
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  let finished: RunFinishedJson = {};
  try {
    for (;;) {
      const next = await step<IteratorResult<EngineEvent>>(enter(() => events.next()));
      if (next === ABANDONED || !next || next.done) break;
      if (!signal.aborted) {
        const checked = checkEngineEvent(next.value, { messageId: turn.messageId, now: () => clock.now() });
        if ("event" in checked) {
          const backpressure = publish(checked.event);
          if (backpressure) await untilAborted(backpressure, signal);
          continue;
        }
        finished = checked.finished;
      }
      // The engine has finished, or the run was aborted.
      await step(leave());
      break;
    }
  } catch (error) {
    // The engine's event was refused: end the engine as well.
    leave()?.then(undefined, () => {});
    throw error;
  } finally {
    signal.removeEventListener("abort", onAbort);
    cancelTimer();
    if (abandoned) leave()?.then(undefined, () => {});
  }
  return { finished, abandoned };
}

/** Waits for the work or the signal, whichever comes first. */
async function untilAborted(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const aborted = () => resolve(undefined);
  if (signal.aborted) aborted();
  signal.addEventListener("abort", aborted, { once: true });
  work.then(resolve, reject);
  await promise.finally(() => signal.removeEventListener("abort", aborted));
}

/** Events that only the server may send. */
const SERVERS_OWN = [
  "run_started",
  "run_failed",
  "run_stopped",
  "run_waiting",
  "run_resumed",
  "tool_approval_decided",
  "queue_changed",
  "participants_changed",
  "branch_changed",
] as const satisfies (keyof EventJson)[];

/** A checked engine event: one to publish, or the end. */
type CheckedEvent = { readonly event: EventJson } | { readonly finished: RunFinishedJson };

/** Checks an event of an engine and fills in the turn's defaults. Throws an error with a message for users. */
export function checkEngineEvent(
  value: unknown,
  turn: { messageId: string; now: () => number },
): CheckedEvent {
  const delta = plainTextDelta(value);
  if (delta)
    return { event: { text_delta: { message_id: delta.message_id || turn.messageId, text: delta.text } } };
  const event = parseEvent(value);
  const { run_finished: finished } = event;
  if (finished) return { finished };
  if (SERVERS_OWN.some((kind) => event[kind]))
    throw new Error("The engine sent an event that only the server may send.");
  for (const kind of [
    "reasoning_delta",
    "text_delta",
    "tool_call",
    "tool_result",
    "custom",
    "message",
    "file_added",
    "source_added",
    "tool_approval_requested",
  ] as const) {
    const body = event[kind];
    if (body && !body.message_id) body.message_id = turn.messageId;
  }
  checkIds(event);
  const { waits_for: waits } = event.tool_call ?? {};
  if (waits && waits !== "output")
    throw new Error(
      'A tool_call waits for "output" or nothing. For an approval, send tool_approval_requested.',
    );
  if (event.message) {
    const { role = "" } = event.message;
    if (role && !ROLES.includes(role))
      throw new Error(
        `The engine sent an event with the role "${role}": a role is one of ${ROLES.join(", ")}.`,
      );
    delete event.message.siblings;
    delete event.message.replies;
    event.message.role ||= "assistant";
    event.message.created_at ||= new Date(turn.now()).toISOString();
  }
  return { event };
}

/** Refuses ids under which an event cannot be stored, or decided. */
function checkIds(event: EventJson): void {
  const id = messageIdOf(event);
  if (id !== undefined && !isId(id))
    throw new Error("The engine sent an event whose message_id is not 1 to 200 printable ASCII characters.");
  const { tool_call: call, tool_result: result, tool_approval_requested: asked } = event;
  const { tool_call_id: callId = "" } = call ?? result ?? asked ?? {};
  if ((call || result) && callId === "")
    throw new Error("The engine sent an event of a tool call without its tool_call_id.");
  if ((call?.waits_for || asked) && !isId(callId))
    throw new Error(
      "The engine sent an event of a call to decide whose tool_call_id is not 1 to 200 printable ASCII characters.",
    );
}

/** Fast path for the most frequent event, without the schema. */
function plainTextDelta(value: unknown): { message_id?: string; text: string } | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const keys = Object.keys(value);
  if (keys.length !== 1 || keys[0] !== "text_delta") return undefined;
  const delta = (value as { text_delta: unknown }).text_delta;
  if (typeof delta !== "object" || delta === null) return undefined;
  const { message_id, text, ...rest } = delta as { message_id?: unknown; text?: unknown };
  if (typeof text !== "string" || Object.keys(rest).length > 0) return undefined;
  if (message_id === undefined) return { text };
  return typeof message_id === "string" && isId(message_id) ? { message_id, text } : undefined;
}

function parseEvent(value: unknown): EventJson {
  let event: EventJson;
  try {
    event = toJson(EventSchema, fromJson(EventSchema, value as JsonValue));
  } catch (error) {
    throw new Error("The engine sent an unknown event.", { cause: error });
  }
  if (Object.keys(event).length === 0) throw new Error("The engine sent an unknown event.");
  return event;
}
