import { type Clock, sleep } from "../../kit/clock.ts";
import type { EngineFactory } from "./engine.ts";
import type { Script, Step } from "./script.ts";
import { demoScript } from "./scripted_demo.ts";

export type { Script, Step };

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
