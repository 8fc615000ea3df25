import type {
  EngineEvent,
  EngineFactory,
  Turn,
} from "../../../packages/server/src/conversations/engines/engine.ts";
import type { Killable } from "./killable.ts";

/**
 * Does what the words of a message say: `work` calls a tool of the server, `pay` one that needs an approval, `ask` one of the
 * client, and `slow` waits before the last sentence. It continues after what is kept of it.
 */
export class HistoryEngine {
  /** Calls whose results are recorded: to execute one again breaks the promise. */
  readonly recorded = new Set<string>();
  readonly #again: string[] = [];
  readonly #waiting = new Map<string, () => void>();
  #executed = 0;

  /** What was executed again after its result was recorded. */
  get again(): readonly string[] {
    return this.#again;
  }

  get executed(): number {
    return this.#executed;
  }

  isSlow(runId: string | undefined): boolean {
    return runId !== undefined && this.#waiting.has(runId);
  }

  /** Lets all slow answers go on. */
  release(): void {
    for (const go of this.#waiting.values()) go();
    this.#waiting.clear();
  }

  /** The engine on a server. */
  on(server: Killable): EngineFactory {
    return () => ({ resumable: true, run: (turn, signal) => this.#run(server, turn, signal) });
  }

  async *#run(server: Killable, turn: Turn, signal: AbortSignal): AsyncGenerator<EngineEvent> {
    const { message, runId } = turn;
    const words = message.split(" ");
    const kept = (turn.resume?.messages ?? []).flatMap(({ parts = [] }) =>
      parts.flatMap(({ tool }) => tool ?? []),
    );
    const callOf = (tool: string) => kept.find(({ tool_call_id }) => tool_call_id === `${runId}-${tool}`);
    const call = (tool: string) => ({ tool_call_id: `${runId}-${tool}`, tool });
    const result = async (tool: string): Promise<EngineEvent> => {
      await server.alive();
      this.#executed++;
      const { tool_call_id: id } = call(tool);
      if (this.recorded.has(id)) this.#again.push(id);
      return { tool_result: { ...call(tool), output: { n: this.#executed } } };
    };
    yield { text_delta: { text: "Let me see. " } };
    if (words.includes("work") && !callOf("work")) {
      yield { tool_call: { ...call("work"), input: {} } };
      yield await result("work");
      yield { text_delta: { text: "That worked. " } };
    }
    const asks = words.filter((word) => (word === "pay" || word === "ask") && !callOf(word));
    for (const tool of asks) {
      const waits = tool === "ask" && { waits_for: "output" };
      yield { tool_call: { ...call(tool), input: { euros: 5 }, ...waits } };
      if (tool === "pay") yield { tool_approval_requested: { tool_call_id: call(tool).tool_call_id } };
    }
    if (asks.length > 0) return;
    const pay = callOf("pay");
    if (pay?.decision?.approved && pay.output === undefined && pay.error === undefined)
      yield await result("pay");
    if (words.includes("slow")) {
      yield { text_delta: { text: "Wait " } };
      await this.#wait(runId, signal);
      await server.alive();
    }
    yield { reasoning_delta: { text: "Hm." } };
    yield { text_delta: { text: `for ${message}.` } };
  }

  async #wait(runId: string, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.set(runId, resolve);
    signal.addEventListener("abort", () => resolve(), { once: true });
    if (!signal.aborted) await promise;
    if (this.#waiting.get(runId) === resolve) this.#waiting.delete(runId);
  }
}
