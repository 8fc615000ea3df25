import { testTurn } from "../turns/open_turn.ts";
import type { Engine, EngineEvent, EngineFactory, Turn } from "./engine.ts";

export { testTurn as turnOf };

/** The result of a run: its events, and its error. */
export interface Outcome {
  readonly events: EngineEvent[];
  readonly error: Error | undefined;
}

/** Runs a turn to its end. `onEvent` sees each event before the next one is asked for. */
export async function play(
  engine: EngineFactory | Engine,
  turn: Turn,
  { signal = new AbortController().signal, onEvent = (_: EngineEvent): unknown => undefined } = {},
): Promise<Outcome> {
  const events: EngineEvent[] = [];
  const { run } = typeof engine === "function" ? engine(turn) : engine;
  try {
    for await (const event of run(turn, signal)) {
      events.push(event);
      await onEvent(event);
    }
    return { events, error: undefined };
  } catch (error) {
    return { events, error: error as Error };
  }
}

/** The text of an answer. */
export function textOf(events: readonly EngineEvent[]): string {
  return events.map(({ text_delta }) => text_delta?.text ?? "").join("");
}
