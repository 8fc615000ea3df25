import type {
  PartJson,
  ToolCallJson,
  ToolJson,
  ToolResultJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import type { TimelineEvent } from "./timeline.ts";

interface Message {
  readonly message_id: string;
  readonly role: string;
  readonly run_id: string;
  readonly parts: PartJson[];
  status: string;
  truncated: boolean;
}

/** Folds the events of a conversation into messages. Deterministic: every server gets the same messages. */
export class Transcript {
  readonly #messages = new Map<string, Message>();
  /** Runs whose start was seen. Messages of other runs may be truncated. */
  readonly #started = new Set<string>();
  readonly #ended = new Set<string>();
  #running: string | undefined;

  /** The active run. */
  get running(): string | undefined {
    return this.#running;
  }

  /** Whether the end of a run was seen. */
  hasEnded(runId: string): boolean {
    return this.#ended.has(runId);
  }

  /** The last messages, oldest first. */
  last(count = Number.POSITIVE_INFINITY): TranscriptMessageJson[] {
    const all = [...this.#messages.values()];
    return all.slice(Math.max(0, all.length - count)).map((message) => ({
      ...message,
      parts: message.parts.map((part) => ({ ...part, ...(part.tool && { tool: { ...part.tool } }) })),
    }));
  }

  /** The messages of the active run, for sockets that join during it. */
  current(): TranscriptMessageJson[] {
    return this.last().filter(({ run_id }) => run_id === this.#running);
  }

  /** Applies the next event. */
  add({ runId, event }: TimelineEvent): void {
    // A run is active from its first event, even if its start was trimmed.
    if (runId !== "" && !this.#ended.has(runId)) this.#running = runId;
    if (event.run_started) this.#started.add(runId);
    else if (event.run_finished) this.#end(runId, "done");
    else if (event.run_failed) this.#end(runId, "failed");
    else if (event.run_stopped) this.#end(runId, "stopped");
    else if (event.message) {
      const { message_id = "", role = "assistant", text = "" } = event.message;
      const message = this.#message(message_id, runId, role);
      message.parts.push({ text });
      message.status = "done";
    } else if (event.text_delta) this.#extend(runId, "text", event.text_delta);
    else if (event.reasoning_delta) this.#extend(runId, "reasoning", event.reasoning_delta);
    else if (event.tool_call) this.#call(runId, event.tool_call);
    else if (event.tool_result) this.#result(runId, event.tool_result);
    else if (event.custom) {
      this.#message(event.custom.message_id ?? "", runId).parts.push({ custom: event.custom });
    }
  }

  #message(id: string, runId: string, role = "assistant"): Message {
    let message = this.#messages.get(id);
    if (!message) {
      const truncated = role === "assistant" && runId !== "" && !this.#started.has(runId);
      message = { message_id: id, role, run_id: runId, parts: [], status: "streaming", truncated };
      this.#messages.set(id, message);
    }
    return message;
  }

  #extend(
    runId: string,
    kind: "text" | "reasoning",
    delta: { message_id?: string | undefined; text?: string | undefined },
  ): void {
    const { parts } = this.#message(delta.message_id ?? "", runId);
    const last = parts.at(-1);
    const text = delta.text ?? "";
    if (last?.[kind] !== undefined) last[kind] += text;
    else parts.push({ [kind]: text });
  }

  #call(runId: string, { message_id = "", tool_call_id = "", tool = "", input = null }: ToolCallJson): void {
    this.#message(message_id, runId).parts.push({ tool: { tool_call_id, tool, input } });
  }

  #result(runId: string, result: ToolResultJson): void {
    const { message_id = "", tool_call_id = "", tool = "", output, error } = result;
    const { parts } = this.#message(message_id, runId);
    const known = parts.find((part) => part.tool?.tool_call_id === tool_call_id)?.tool;
    const target: ToolJson = known ?? { tool_call_id, tool };
    if (!known) parts.push({ tool: target });
    if (output !== undefined) target.output = output;
    if (error !== undefined) target.error = error;
  }

  #end(runId: string, status: string): void {
    this.#ended.add(runId);
    for (const message of this.#messages.values()) {
      if (message.run_id === runId && message.status === "streaming") message.status = status;
    }
    if (this.#running === runId) this.#running = undefined;
  }
}
