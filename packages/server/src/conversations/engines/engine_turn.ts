import type { RunFinishedJson } from "@khala/contracts/conversation/v1";
import type { Clock } from "../../kit/clock.ts";
import type { Engine, EngineEvent, Turn } from "./engine.ts";
import { readEngineEvent, type Said } from "./engine_events.ts";

/** How long an engine may take to end after it was told to. */
const ABANDON_AFTER_MS = 5_000;
const ABANDONED = Symbol("abandoned");

export interface EngineTurnOptions {
  readonly engine: Engine;
  readonly turn: Turn;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Takes an event; a promise is waited for. */
  readonly publish: (event: Extract<Said, { event: unknown }>["event"]) => Promise<void> | undefined;
}

/** How a turn came to its end. `abandoned`: the engine did not stop when told, and must not be used again. */
export interface EngineTurnEnd {
  readonly finished: RunFinishedJson;
  readonly abandoned: boolean;
}

/** Lets an engine answer a turn. Throws what the engine throws; whoever aborted the signal knows better why it ended. */
export async function runEngineTurn(options: EngineTurnOptions): Promise<EngineTurnEnd> {
  const { engine, turn, signal, clock, publish } = options;
  const events = engine.run(turn, signal)[Symbol.asyncIterator]();
  // One promise per step instead of a race with one that lives as long as the run, which would remember every step.
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
      const next = await step<IteratorResult<EngineEvent>>(events.next());
      if (next === ABANDONED || !next || next.done) break;
      if (!signal.aborted) {
        const said = readEngineEvent(next.value, { messageId: turn.messageId, now: () => clock.now() });
        if ("event" in said) {
          const room = publish(said.event);
          if (room) await untilAborted(room, signal);
          continue;
        }
        finished = said.finished;
      }
      // It has said its last word, or nobody listens any more.
      await step(events.return?.());
      break;
    }
  } catch (error) {
    // What it yielded was refused: it is told to end as well.
    events.return?.().then(undefined, () => {});
    throw error;
  } finally {
    signal.removeEventListener("abort", onAbort);
    cancelTimer();
    if (abandoned) events.return?.().then(undefined, () => {});
  }
  return { finished, abandoned };
}

/** Waits for work, but not longer than until the signal aborts. */
export async function untilAborted(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const aborted = () => resolve(undefined);
  if (signal.aborted) aborted();
  signal.addEventListener("abort", aborted, { once: true });
  work.then(resolve, reject);
  await promise.finally(() => signal.removeEventListener("abort", aborted));
}
