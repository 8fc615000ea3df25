import type {
  EventJson,
  PendingCallJson,
  RunFinishedJson,
  ToolApprovalDecidedJson,
  ToolCallJson,
  ToolResultJson,
} from "@khala/contracts/conversation/v1";
import { type KnownParts, NOTHING_KNOWN } from "./continued_run.ts";
import { INTERRUPTED_CALL, type Streamed, UnfinishedStep } from "./unfinished_step.ts";

/** An event of AG-UI 1.0 in its wire form. */
export interface AgUiEvent {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** Translates the events of one run to AG-UI. Pure. Everything that was opened is closed before the run ends. */
export class AgUiEvents {
  readonly #ids: { readonly threadId: string; readonly runId: string };
  readonly #used: Set<string>;
  readonly #calls: Set<string>;
  /** Calls that the client has executed. */
  readonly #executed: ReadonlySet<string>;
  readonly #step = new UnfinishedStep();
  #open: { readonly kind: Streamed; readonly id: string; readonly messageId: string } | undefined;
  #lastText: string | undefined;
  #ended = false;

  /** The ids are the client's own. A stream that continues a run names what the client has of it. */
  constructor(threadId: string, runId: string, known: KnownParts = NOTHING_KNOWN) {
    this.#ids = { threadId, runId };
    this.#used = new Set(known.messages);
    this.#calls = new Set(known.calls);
    this.#executed = new Set(known.executed);
  }

  /** The first event, which clients insist on. */
  begin(): AgUiEvent[] {
    return [{ type: "RUN_STARTED", ...this.#ids }];
  }

  /** The events of the run's next event. */
  event(event: EventJson): AgUiEvent[] {
    if (this.#ended) return [];
    if (event.text_delta) return this.#delta("text", event.text_delta.message_id, event.text_delta.text);
    if (event.reasoning_delta)
      return this.#delta("reasoning", event.reasoning_delta.message_id, event.reasoning_delta.text);
    if (event.message) {
      const { role, message_id, text = "", parts = [{ text }] } = event.message;
      // The client already has the user's message.
      if (role !== "assistant") return [];
      const said = parts.flatMap((part) =>
        part.file ? custom("file", part.file) : this.#delta("text", message_id, part.text),
      );
      return [...said, ...this.#close()];
    }
    if (event.tool_call) return this.#call(event.tool_call);
    // A waiting call is kept when the run continues.
    if (event.tool_approval_requested) this.#step.completed(event.tool_approval_requested.tool_call_id ?? "");
    if (event.tool_approval_decided) return this.#decided(event.tool_approval_decided);
    if (event.tool_result && this.#executed.has(event.tool_result.tool_call_id ?? "")) return [];
    if (event.tool_result) return this.#result(event.tool_result);
    if (event.file_added) return custom("file", event.file_added.file);
    if (event.source_added) return custom("source", event.source_added.source);
    if (event.custom)
      return [{ type: "CUSTOM", name: event.custom.name ?? "", value: event.custom.data ?? null }];
    if (event.status) return [{ type: "CUSTOM", name: "status", value: event.status.text ?? "" }];
    if (event.run_resumed) return this.#retract();
    if (event.run_waiting) return this.wait(event.run_waiting.calls ?? []);
    if (event.run_finished)
      return this.#end({ type: "RUN_FINISHED", ...this.#ids, ...usageOf(event.run_finished) });
    if (event.run_stopped)
      return this.#end({ type: "RUN_FINISHED", ...this.#ids, outcome: { type: "cancelled" } });
    if (event.run_failed)
      return this.fail(event.run_failed.message || "The run failed.", event.run_failed.code);
    return [];
  }

  /** Ends the run of the client: ours waits for approvals, which are interrupts, or for the output of the client's tools. */
  wait(calls: readonly PendingCallJson[]): AgUiEvent[] {
    if (this.#ended) return [];
    const approvals = calls.filter(({ waits_for }) => waits_for === "approval");
    const pendingToolCallIds = calls.map(({ tool_call_id }) => tool_call_id);
    const outcome =
      approvals.length > 0
        ? { type: "interrupt", interrupts: approvals.map(interruptOf) }
        : { type: "success", pendingToolCallIds };
    return this.#end({ type: "RUN_FINISHED", ...this.#ids, outcome });
  }

  /** Ends the run with an error. */
  fail(message: string, code?: string): AgUiEvent[] {
    return this.#ended ? [] : this.#end({ type: "RUN_ERROR", message, ...(code && { code }) });
  }

  /** Calls that were taken back end; the text that follows is compared with what was sent. */
  #retract(): AgUiEvent[] {
    return this.#step
      .takenBack()
      .flatMap((tool_call_id) => this.#result({ tool_call_id, error: INTERRUPTED_CALL }));
  }

  /** A denied call has no output, but the client's history needs a result. */
  #decided({ tool_call_id = "", decision }: ToolApprovalDecidedJson): AgUiEvent[] {
    if (decision?.approved) return [];
    const why = decision?.reason ? `: ${decision.reason}` : ".";
    return this.#result({ tool_call_id, error: `The call was denied${why}` });
  }

  #delta(kind: Streamed, messageId = "", said = ""): AgUiEvent[] {
    const { text: delta, fresh } = this.#step.next(kind, said);
    if (delta === "") return [];
    const events: AgUiEvent[] = fresh ? this.#close() : [];
    if (this.#open?.kind !== kind || this.#open.messageId !== messageId) {
      events.push(...this.#close(), ...this.#start(kind, messageId));
    }
    const type = kind === "text" ? "TEXT_MESSAGE_CONTENT" : "REASONING_MESSAGE_CONTENT";
    events.push({ type, messageId: this.#open!.id, delta });
    return events;
  }

  #start(kind: Streamed, messageId: string): AgUiEvent[] {
    const id = this.#newId(kind === "text" ? messageId || this.#ids.runId : `${messageId}-reasoning`);
    this.#open = { kind, id, messageId };
    if (kind === "reasoning") {
      return [
        { type: "REASONING_START", messageId: id },
        { type: "REASONING_MESSAGE_START", messageId: id, role: "reasoning" },
      ];
    }
    this.#lastText = id;
    return [{ type: "TEXT_MESSAGE_START", messageId: id, role: "assistant" }];
  }

  /** An AG-UI message has no parts: text after a tool call is a new message, or it would be placed before the call. */
  #newId(wanted: string): string {
    let id = wanted;
    for (let n = 2; this.#used.has(id); n++) id = `${wanted}-${n}`;
    this.#used.add(id);
    return id;
  }

  #call({ tool_call_id = "", tool = "", input = null, waits_for }: ToolCallJson): AgUiEvent[] {
    if (!waits_for) this.#step.called(tool_call_id);
    // Made again after it was taken back.
    if (this.#calls.has(tool_call_id)) return this.#close();
    this.#calls.add(tool_call_id);
    const parent = this.#lastText !== undefined && { parentMessageId: this.#lastText };
    return [
      ...this.#close(),
      { type: "TOOL_CALL_START", toolCallId: tool_call_id, toolCallName: tool, ...parent },
      { type: "TOOL_CALL_ARGS", toolCallId: tool_call_id, delta: JSON.stringify(input) },
      { type: "TOOL_CALL_END", toolCallId: tool_call_id },
    ];
  }

  #result({ tool_call_id = "", tool = "", output = null, error }: ToolResultJson): AgUiEvent[] {
    const call = this.#calls.has(tool_call_id) ? [] : this.#call({ tool_call_id, tool });
    this.#step.completed(tool_call_id);
    const said = error !== undefined ? { error } : output;
    const content = typeof said === "string" ? said : JSON.stringify(said);
    const messageId = this.#newId(`${tool_call_id}-result`);
    const result = { type: "TOOL_CALL_RESULT", messageId, toolCallId: tool_call_id, content, role: "tool" };
    return [...call, ...this.#close(), result];
  }

  #close(): AgUiEvent[] {
    if (!this.#open) return [];
    const { kind, id: messageId } = this.#open;
    this.#open = undefined;
    return kind === "text"
      ? [{ type: "TEXT_MESSAGE_END", messageId }]
      : [
          { type: "REASONING_MESSAGE_END", messageId },
          { type: "REASONING_END", messageId },
        ];
  }

  #end(last: AgUiEvent): AgUiEvent[] {
    this.#ended = true;
    return [...this.#close(), last];
  }
}

/** The question whether a tool may be executed. Its answer is the payload of the client's `resume`. */
function interruptOf({ tool_call_id: id, tool }: PendingCallJson): object {
  const responseSchema = {
    type: "object",
    properties: { approved: { type: "boolean" }, reason: { type: "string" } },
    required: ["approved"],
  };
  const message = `May the tool ${tool} be used?`;
  return { id, reason: "tool_approval", message, toolCallId: id, responseSchema };
}

/** The events that AG-UI has no type for. */
function custom(name: string, value: unknown): AgUiEvent[] {
  return [{ type: "CUSTOM", name, value: value ?? null }];
}

function usageOf({ usage }: RunFinishedJson): { usage?: readonly Readonly<Record<string, number>>[] } {
  if (!usage) return {};
  const { input_tokens, output_tokens } = usage;
  return {
    usage: [
      {
        ...(input_tokens !== undefined && { inputTokens: input_tokens }),
        ...(output_tokens !== undefined && { outputTokens: output_tokens }),
      },
    ],
  };
}
