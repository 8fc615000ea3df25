import type {
  Engine,
  EngineEvent,
  EngineFactory,
  Turn,
} from "../../../server/src/conversations/engines/engine.ts";
import { Changes, until } from "../kit/until.ts";

/** A turn whose answer the test controls. */
export class ManualTurn extends Changes {
  readonly turn: Turn;
  readonly signal: AbortSignal;
  readonly #events: EngineEvent[] = [];
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
    this.#events.push(...events);
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
      const due = () => this.#events.length > 0 || this.#end !== "no" || this.signal.aborted;
      await until("the next event of the turn", due, { on: this, deadlineMs: 60_000 });
      if (this.signal.aborted) return;
      yield* this.#events.splice(0);
      if (this.#events.length > 0) continue;
      if (this.#end === "finished") return;
      if (this.#end !== "no") throw this.#end;
    }
  }
}

/** An engine whose answers the test controls, turn by turn. */
export class ManualEngine extends Changes {
  readonly #turns: ManualTurn[] = [];

  /** Every turn so far. */
  get turns(): readonly ManualTurn[] {
    return this.#turns;
  }

  readonly factory: EngineFactory = () => {
    const engine: Engine = {
      run: (turn, signal) => {
        const manual = new ManualTurn(turn, signal);
        this.#turns.push(manual);
        this.changed();
        return manual.events();
      },
    };
    return engine;
  };

  /** The number of turns that were started in a conversation. */
  turnCount(convId: string): number {
    return this.#turns.filter(({ turn }) => turn.convId === convId).length;
  }

  /** The turn of a run, once it has started. */
  turn(runId: string): Promise<ManualTurn> {
    return until("the start of the turn", () => this.#turns.find(({ turn }) => turn.runId === runId), {
      on: this,
    });
  }
}
