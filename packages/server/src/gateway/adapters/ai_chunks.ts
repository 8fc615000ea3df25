import type {
  EventJson,
  PartJson,
  ToolApprovalDecidedJson,
  ToolJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import { type KnownParts, NOTHING_KNOWN } from "./continued_run.ts";
import { INTERRUPTED_CALL, type Streamed, UnfinishedStep } from "./unfinished_step.ts";

/**
 * A chunk of an AI SDK UI message stream. Only chunks and fields that v5, v6 and v7 all know: v5 refuses a field that it
 * does not, and an unknown type breaks the whole chat. Approvals are the exception: v5 has none.
 */
export type AiChunk =
  | { readonly type: "start"; readonly messageId?: string }
  | { readonly type: "start-step" | "finish-step" | "finish" | "abort" }
  | { readonly type: "text-start" | "text-end" | "reasoning-start" | "reasoning-end"; readonly id: string }
  | { readonly type: "text-delta" | "reasoning-delta"; readonly id: string; readonly delta: string }
  | {
      readonly type: "tool-input-available";
      readonly toolCallId: string;
      readonly toolName: string;
      readonly input: unknown;
      readonly providerExecuted?: true;
    }
  | { readonly type: "tool-approval-request"; readonly approvalId: string; readonly toolCallId: string }
  | { readonly type: "tool-output-denied"; readonly toolCallId: string }
  | {
      readonly type: "tool-output-available";
      readonly toolCallId: string;
      readonly output: unknown;
      readonly providerExecuted?: true;
    }
  | {
      readonly type: "tool-output-error";
      readonly toolCallId: string;
      readonly errorText: string;
      readonly providerExecuted?: true;
    }
  | { readonly type: "file"; readonly url: string; readonly mediaType: string }
  | { readonly type: "source-url"; readonly sourceId: string; readonly url: string; readonly title?: string }
  | { readonly type: `data-${string}`; readonly data: unknown; readonly transient?: true }
  | { readonly type: "error"; readonly errorText: string };

// For a tool that runs on the server: a client must neither run it nor wait for a result of its own.
const providerExecuted = true;

/** One run as one UI message: events in, chunks out. Pure: the same events make the same chunks. */
export class AiChunks {
  readonly #runId: string;
  readonly #messageId: string | undefined;
  readonly #calls: Set<string>;
  /** Calls that the client executes. */
  readonly #ofClient = new Set<string>();
  readonly #executed: ReadonlySet<string>;
  readonly #step = new UnfinishedStep();
  #open: { readonly kind: Streamed; readonly id: string; readonly messageId: string } | undefined;
  #parts = 0;
  #begun = false;
  #ended = false;

  /** A stream that continues a message of the client names what the client has of it. */
  constructor(runId: string, { messages, calls, executed }: KnownParts = NOTHING_KNOWN) {
    this.#runId = runId;
    this.#messageId = messages[0];
    this.#calls = new Set(calls);
    this.#executed = new Set(executed);
  }

  /** The messages of a run that is joined late, each part in one chunk. Later deltas continue the last part. */
  replay(messages: readonly TranscriptMessageJson[]): AiChunk[] {
    const chunks: AiChunk[] = [];
    for (const { message_id = "", role, parts = [] } of messages) {
      if (role !== "assistant") continue;
      for (const part of parts) chunks.push(...this.#part(message_id, part));
    }
    return chunks;
  }

  /** The chunks of the run's next event. */
  event(event: EventJson): AiChunk[] {
    if (this.#ended) return [];
    if (event.text_delta) return this.#delta("text", event.text_delta.message_id, event.text_delta.text);
    if (event.reasoning_delta)
      return this.#delta("reasoning", event.reasoning_delta.message_id, event.reasoning_delta.text);
    if (event.message) {
      const { role, message_id, text = "", parts = [{ text }] } = event.message;
      // The client already has the user's message.
      if (role !== "assistant") return [];
      return [...parts.flatMap((part) => this.#part(message_id, part)), ...this.#close()];
    }
    if (event.tool_call) return this.#tool(event.tool_call.message_id, event.tool_call);
    if (event.tool_approval_requested) return this.#approval(event.tool_approval_requested.tool_call_id);
    if (event.tool_approval_decided) return this.#decided(event.tool_approval_decided);
    if (event.tool_result && this.#executed.has(event.tool_result.tool_call_id ?? "")) return [];
    if (event.tool_result)
      return this.#tool(event.tool_result.message_id, { output: null, ...event.tool_result });
    if (event.file_added) return this.#part(event.file_added.message_id, event.file_added);
    if (event.source_added) return this.#part(event.source_added.message_id, event.source_added);
    if (event.custom) return this.#part(event.custom.message_id, { custom: event.custom });
    if (event.status) return [{ type: "data-status", data: event.status.text ?? "", transient: true }];
    if (event.run_resumed) return this.#retract();
    if (event.run_finished || event.run_waiting) return this.#end();
    if (event.run_stopped) return this.#end({ type: "abort" });
    if (event.run_failed) return this.fail(event.run_failed.message || "The run failed.");
    return [];
  }

  /** Ends the message: its run waits for other decisions. */
  wait(): AiChunk[] {
    return this.#ended ? [] : this.#end();
  }

  /** Ends the message with an error. */
  fail(errorText: string): AiChunk[] {
    return this.#ended ? [] : this.#end({ type: "error", errorText });
  }

  #part(messageId: string | undefined, part: PartJson): AiChunk[] {
    const { text, reasoning, tool } = part;
    if (text !== undefined) return this.#delta("text", messageId, text);
    if (reasoning !== undefined) return this.#delta("reasoning", messageId, reasoning);
    if (tool) return this.#tool(messageId, tool);
    const chunk = wholeChunk(part);
    return chunk ? [...this.#begin(messageId), ...this.#close(), chunk] : [];
  }

  /** Calls that were taken back end; the text that follows is compared with what was sent. */
  #retract(): AiChunk[] {
    return this.#step.takenBack().map((toolCallId) => ({
      type: "tool-output-error",
      toolCallId,
      errorText: INTERRUPTED_CALL,
      providerExecuted,
    }));
  }

  #delta(kind: Streamed, messageId = "", said = ""): AiChunk[] {
    const { text: delta, fresh } = this.#step.next(kind, said);
    if (delta === "") return [];
    const chunks = this.#begin(messageId);
    if (fresh) chunks.push(...this.#close());
    if (this.#open?.kind !== kind || this.#open.messageId !== messageId) {
      chunks.push(...this.#close());
      this.#open = { kind, id: String(this.#parts++), messageId };
      chunks.push({ type: `${kind}-start`, id: this.#open.id });
    }
    chunks.push({ type: `${kind}-delta`, id: this.#open.id, delta });
    return chunks;
  }

  /** A call, a result, or both. A result whose call is not known brings its own: clients refuse it otherwise. */
  #tool(
    messageId: string | undefined,
    { tool_call_id = "", tool = "", input, output, error, waits_for, decision }: ToolJson,
  ): AiChunk[] {
    const chunks = [...this.#begin(messageId), ...this.#close()];
    if (!this.#calls.has(tool_call_id)) {
      this.#calls.add(tool_call_id);
      if (waits_for === "output") this.#ofClient.add(tool_call_id);
      const call = { toolCallId: tool_call_id, toolName: tool, input: input ?? null };
      chunks.push({ type: "tool-input-available", ...call, ...this.#executor(tool_call_id) });
    }
    if (waits_for === "approval" && !decision?.approved) chunks.push(...this.#approval(tool_call_id));
    if (decision) chunks.push(...this.#decided({ tool_call_id, decision }));
    if (error !== undefined || output !== undefined) this.#step.completed(tool_call_id);
    else if (!waits_for) this.#step.called(tool_call_id);
    const result = { toolCallId: tool_call_id, ...this.#executor(tool_call_id) } as const;
    if (error !== undefined) chunks.push({ type: "tool-output-error", errorText: error, ...result });
    else if (output !== undefined) chunks.push({ type: "tool-output-available", output, ...result });
    return chunks;
  }

  #executor(toolCallId: string): { readonly providerExecuted?: true } {
    return this.#ofClient.has(toolCallId) ? {} : { providerExecuted };
  }

  /** A waiting call is kept when the run continues. */
  #approval(toolCallId = ""): AiChunk[] {
    this.#step.completed(toolCallId);
    return [{ type: "tool-approval-request", approvalId: toolCallId, toolCallId }];
  }

  /** The client that approves a call knows that; its output follows. */
  #decided({ tool_call_id: toolCallId = "", decision }: ToolApprovalDecidedJson): AiChunk[] {
    return decision?.approved ? [] : [...this.#begin(undefined), { type: "tool-output-denied", toolCallId }];
  }

  /** The first message of the run names the UI message, so that a replay has the same id. */
  #begin(messageId: string | undefined): AiChunk[] {
    if (this.#begun) return [];
    this.#begun = true;
    return [
      { type: "start", messageId: this.#messageId || messageId || this.#runId },
      { type: "start-step" },
    ];
  }

  #close(): AiChunk[] {
    if (!this.#open) return [];
    const { kind, id } = this.#open;
    this.#open = undefined;
    return [{ type: `${kind}-end`, id }];
  }

  #end(...last: AiChunk[]): AiChunk[] {
    this.#ended = true;
    // Without an id: a run without output leaves no empty message behind.
    const messageId = this.#messageId !== undefined && { messageId: this.#messageId };
    const begin: AiChunk[] = this.#begun ? [] : [{ type: "start", ...messageId }, { type: "start-step" }];
    return [...begin, ...this.#close(), ...last, { type: "finish-step" }, { type: "finish" }];
  }
}

/** The chunk of a part that comes in one piece. */
function wholeChunk({ file, source, custom }: PartJson): AiChunk | undefined {
  if (file) return { type: "file", url: file.url ?? "", mediaType: file.media_type ?? "" };
  if (source) {
    const { source_id: sourceId = "", url = "", title } = source;
    return { type: "source-url", sourceId, url, ...(title && { title }) };
  }
  return custom && { type: `data-${custom.name ?? ""}`, data: custom.data ?? null };
}
