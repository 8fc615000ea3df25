import type {
  Engine,
  EngineEvent,
  EngineFactory,
  Turn,
} from "../../../server/src/conversations/engines/engine.ts";
import { Changes, until } from "../kit/until.ts";

/** A turn that is being answered: says what the test tells it to, when it tells it to. */
export class Performance extends Changes {
  readonly turn: Turn;
  readonly signal: AbortSignal;
  readonly #said: EngineEvent[] = [];
  #end: "no" | "finished" | Error = "no";

  constructor(turn: Turn, signal: AbortSignal) {
    super();
    this.turn = turn;
    this.signal = signal;
    signal.addEventListener("abort", () => this.changed(), { once: true });
  }

  say(...texts: readonly string[]): void {
    this.emit(...texts.map((text) => ({ text_delta: { text } })));
  }

  emit(...events: readonly EngineEvent[]): void {
    this.#said.push(...events);
    this.changed();
  }

  finish(): void {
    this.#end = "finished";
    this.changed();
  }

  fail(error: Error): void {
    this.#end = error;
    this.changed();
  }

  async *events(): AsyncGenerator<EngineEvent> {
    for (;;) {
      const due = () => this.#said.length > 0 || this.#end !== "no" || this.signal.aborted;
      await until("what comes next on the stage", due, { on: this, deadlineMs: 60_000 });
      if (this.signal.aborted) return;
      yield* this.#said.splice(0);
      if (this.#said.length > 0) continue;
      if (this.#end === "finished") return;
      if (this.#end !== "no") throw this.#end;
    }
  }
}

/** Engines that a test plays: one turn after another, each in its own conversation. */
export class Stage extends Changes {
  readonly #performances: Performance[] = [];

  readonly factory: EngineFactory = () => {
    const engine: Engine = {
      run: (turn, signal) => {
        const performance = new Performance(turn, signal);
        this.#performances.push(performance);
        this.changed();
        return performance.events();
      },
    };
    return engine;
  };

  /** How many turns of a conversation were begun. */
  turns(convId: string): number {
    return this.#performances.filter(({ turn }) => turn.convId === convId).length;
  }

  /** The turn of a run, once it is being answered. */
  performance(runId: string): Promise<Performance> {
    return until("the turn's beginning", () => this.#performances.find(({ turn }) => turn.runId === runId), {
      on: this,
    });
  }
}
