import { type Clock, sleep } from "../../kit/clock.ts";
import type { EngineEvent, EngineFactory, Turn } from "../engine.ts";
import { demoScript } from "./scripted_demo.ts";

/** What a script does next: says something, or waits. */
export type Step = EngineEvent | { readonly waitMs: number };

/** Plays a turn. One that waits on its own account ends when the signal aborts. */
export type Script = (turn: Turn, signal: AbortSignal) => Iterable<Step> | AsyncIterable<Step>;

export interface ScriptedOptions {
  /** What to answer; by default an echo that does more when it is asked to, see docs/ENGINES.md. */
  readonly script?: Script;
  /** A pause after each piece of text or reasoning; none by default. */
  readonly tokenMs?: number;
  /** Whose time is waited for. */
  readonly clock?: Clock;
}

/** Unlike those of the system's clock, its timers keep a program alive that does nothing but wait for an answer. */
const patientClock: Clock = {
  now: () => Date.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, ms);
    return () => clearTimeout(timer);
  },
};

/** An engine that follows a script: the same turn is answered with the same events. */
export function scripted(options: ScriptedOptions = {}): EngineFactory {
  const { script = demoScript, tokenMs = 0, clock = patientClock } = options;
  return () => ({
    async *run(turn, signal) {
      if (signal.aborted) return;
      for await (const step of script(turn, signal)) {
        if (signal.aborted) return;
        if ("waitMs" in step) await sleep(clock, step.waitMs, signal);
        else {
          yield step;
          if (tokenMs > 0 && (step.text_delta || step.reasoning_delta)) await sleep(clock, tokenMs, signal);
        }
        if (signal.aborted) return;
      }
    },
  });
}
