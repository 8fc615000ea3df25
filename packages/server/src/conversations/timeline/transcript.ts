import type {
  BranchChangedJson,
  CustomJson,
  FileAddedJson,
  MessageJson,
  PartJson,
  PendingCallJson,
  RunFailedJson,
  RunResumedJson,
  SourceAddedJson,
  ToolApprovalDecidedJson,
  ToolApprovalRequestedJson,
  ToolCallJson,
  ToolJson,
  ToolResultJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import { endsRun, type TimelineEvent } from "./timeline.ts";

interface Message extends TranscriptMessageJson {
  message_id: string;
  run_id: string;
  parts: PartJson[];
}

/** How a run ended, as in a RunJson. */
export interface RunEnd {
  readonly status: "finished" | "failed" | "stopped";
  readonly error?: RunFailedJson;
}

/** The messages that events make. */
export function messagesOf(
  events: readonly Pick<TimelineEvent, "runId" | "event">[],
): TranscriptMessageJson[] {
  const transcript = new Transcript();
  for (const event of events) transcript.add(event);
  return transcript.last();
}

/** Folds events into messages. Deterministic, and the twin of the client's: every server and client gets the same messages. */
export class Transcript {
  readonly #messages = new Map<string, Message>();
  readonly #ended = new Map<string, RunEnd>();
  readonly #waiting = new Map<string, readonly PendingCallJson[]>();
  #running: string | undefined;

  /** Continues from these messages, which may be changed. */
  constructor(messages: readonly TranscriptMessageJson[] = []) {
    for (const message of messages) {
      const { message_id = "", run_id = "", parts = [] } = message;
      this.#messages.set(message_id, { ...message, message_id, run_id, parts });
    }
  }

  /** The active run. */
  get running(): string | undefined {
    return this.#running;
  }

  /** How a run ended, if its end was seen. */
  endOf(runId: string): RunEnd | undefined {
    return this.#ended.get(runId);
  }

  /** The calls a run waits for, if it is waiting. */
  waitingFor(runId: string): readonly PendingCallJson[] | undefined {
    return this.#waiting.get(runId);
  }

  has(messageId: string): boolean {
    return this.#messages.has(messageId);
  }

  /** The last messages, oldest first. */
  last(count = Number.POSITIVE_INFINITY): TranscriptMessageJson[] {
    const all = [...this.#messages.values()];
    return all.slice(Math.max(0, all.length - count)).map((message) => ({
      ...message,
      parts: message.parts.map((part) => ({ ...part, ...(part.tool && { tool: { ...part.tool } }) })),
    }));
  }

  /** Applies the next event. Returns the id of the message that it changed, if it changed only one. */
  add({ runId, event }: Pick<TimelineEvent, "runId" | "event">): string | undefined {
    // A run is active from its first event, even if its start was trimmed.
    // The end of another one is that of a cancelled queued message.
    if (runId !== "" && !this.#ended.has(runId) && !endsRun({ event })) this.#running = runId;
    if (event.text_delta) return this.#extend(runId, "text", event.text_delta);
    if (event.reasoning_delta) return this.#extend(runId, "reasoning", event.reasoning_delta);
    if (event.tool_call) return this.#call(runId, event.tool_call);
    if (event.tool_result) return this.#result(runId, event.tool_result);
    if (event.tool_approval_requested) return this.#decide(event.tool_approval_requested, "approval");
    if (event.tool_approval_decided) return this.#decide(event.tool_approval_decided, "approval");
    if (event.message) return this.#replace(runId, event.message);
    if (event.file_added) return this.#add(runId, event.file_added);
    if (event.source_added) return this.#add(runId, event.source_added);
    if (event.custom) return this.#custom(runId, event.custom);
    if (event.branch_changed) this.#branch(event.branch_changed);
    else if (event.run_waiting) this.#waiting.set(runId, event.run_waiting.calls ?? []);
    else if (event.run_resumed) this.#resume(runId, event.run_resumed);
    else if (event.run_finished) this.#end(runId, "done", { status: "finished" });
    else if (event.run_failed) this.#end(runId, "failed", { status: "failed", error: event.run_failed });
    else if (event.run_stopped) this.#end(runId, "stopped", { status: "stopped" });
    return undefined;
  }

  /** A message without a beginning of its own follows the last one. It has the time of its run. */
  #message(id: string, runId: string): Message {
    const known = this.#messages.get(id);
    if (known) return known;
    const parentId = this.#lastId();
    const siblings = this.#siblingsOf(id, parentId);
    const createdAt = this.#lastOf(runId)?.created_at;
    const message: Message = {
      message_id: id,
      role: "assistant",
      run_id: runId,
      parts: [],
      status: "streaming",
      ...(parentId !== undefined && { parent_id: parentId }),
      ...(createdAt && { created_at: createdAt }),
      ...(siblings && { siblings }),
    };
    this.#messages.set(id, message);
    return message;
  }

  /** The siblings of a message that begins: it and those that follow its parent in other branches. */
  #siblingsOf(id: string, parentId: string | undefined): string[] | undefined {
    const parent = parentId === undefined ? undefined : this.#messages.get(parentId);
    if (!parent?.replies) return undefined;
    const siblings = [...parent.replies.filter((other) => other !== id), id];
    delete parent.replies;
    return siblings;
  }

  #lastId(): string | undefined {
    let last: string | undefined;
    for (const id of this.#messages.keys()) last = id;
    return last;
  }

  #lastOf(runId: string): Message | undefined {
    if (runId === "") return undefined;
    let last: Message | undefined;
    for (const message of this.#messages.values()) if (message.run_id === runId) last = message;
    return last;
  }

  #replace(runId: string, message: MessageJson): string {
    const { message_id: id = "", role = "assistant", text = "", parts = [] } = message;
    const { author, created_at } = message;
    const known = this.#messages.get(id);
    const parent_id = message.parent_id || (known ? known.parent_id : this.#lastId());
    const others = known ? undefined : this.#siblingsOf(id, parent_id);
    const siblings = message.siblings ?? known?.siblings ?? others;
    const replies = message.replies ?? known?.replies;
    this.#messages.set(id, {
      message_id: id,
      role,
      run_id: runId,
      parts: parts.length > 0 ? structuredClone(parts) : [{ text }],
      status: "done",
      ...(parent_id && { parent_id }),
      ...(author && { author }),
      ...(created_at && { created_at }),
      ...(siblings && { siblings: [...siblings] }),
      ...(replies && { replies: [...replies] }),
    });
    return id;
  }

  #extend(
    runId: string,
    kind: "text" | "reasoning",
    delta: { message_id?: string | undefined; text?: string | undefined },
  ): string {
    const { message_id: id = "", text = "" } = delta;
    const { parts } = this.#message(id, runId);
    const last = parts.at(-1);
    if (last?.[kind] !== undefined) last[kind] += text;
    else parts.push({ [kind]: text });
    return id;
  }

  #call(runId: string, call: ToolCallJson): string {
    const { message_id: id = "", tool_call_id = "", tool = "", input = null, waits_for } = call;
    const waits = waits_for && { waits_for };
    this.#message(id, runId).parts.push({ tool: { tool_call_id, tool, input, ...waits } });
    return id;
  }

  /** A call needs a decision, or has it. A call that is not known has none. */
  #decide(
    of: ToolApprovalRequestedJson & Pick<ToolApprovalDecidedJson, "decision">,
    waits_for: string,
  ): string {
    const { message_id: id = "", tool_call_id, decision } = of;
    const parts = this.#messages.get(id)?.parts ?? [];
    const call = parts.find(({ tool }) => tool?.tool_call_id === tool_call_id)?.tool;
    if (call) Object.assign(call, { waits_for, ...(decision && { decision }) });
    return id;
  }

  #result(runId: string, result: ToolResultJson): string {
    const { message_id: id = "", tool_call_id = "", tool = "", output, error } = result;
    const { parts } = this.#message(id, runId);
    const known = parts.find((part) => part.tool?.tool_call_id === tool_call_id)?.tool;
    const target: ToolJson = known ?? { tool_call_id, tool };
    if (!known) parts.push({ tool: target });
    if (output !== undefined) target.output = output;
    if (error !== undefined) target.error = error;
    return id;
  }

  #add(runId: string, { message_id: id = "", ...part }: FileAddedJson | SourceAddedJson): string {
    this.#message(id, runId).parts.push(part);
    return id;
  }

  /** One without a message is an event, and part of none. */
  #custom(runId: string, custom: CustomJson): string | undefined {
    const { message_id: id } = custom;
    if (id) this.#message(id, runId).parts.push({ custom });
    return id;
  }

  /** Another branch is active: everything after the parent is removed, or everything, if the parent is unknown. */
  #branch({ parent_id = "", messages = [] }: BranchChangedJson): void {
    let after = !this.#messages.has(parent_id);
    for (const id of [...this.#messages.keys()]) {
      if (after) this.#messages.delete(id);
      else after = id === parent_id;
    }
    for (const message of messages) {
      const { message_id = "", run_id = "", parts = [] } = message;
      this.#messages.set(message_id, { ...message, message_id, run_id, parts: structuredClone(parts) });
    }
  }

  /** Cuts the run's messages back to those that are kept. What a person wrote stays. */
  #resume(runId: string, { kept = [] }: RunResumedJson): void {
    this.#waiting.delete(runId);
    const counts = new Map(kept.map(({ message_id = "", parts = 0 }) => [message_id, parts]));
    const gone = new Map<string, Message>();
    for (const [id, message] of this.#messages) {
      const removed = gone.get(message.parent_id ?? "");
      if (removed) follow(message, removed);
      if (message.run_id !== runId || message.role === "user") continue;
      const count = counts.get(id);
      if (count !== undefined) message.parts.splice(count);
      else {
        this.#messages.delete(id);
        gone.set(id, message);
        const parent = this.#messages.get(message.parent_id ?? "");
        if (parent && message.siblings) parent.replies = message.siblings.filter((other) => other !== id);
      }
    }
    for (const { parent_id = "", siblings } of this.#messages.values())
      if (gone.size > 0 && siblings) delete this.#messages.get(parent_id)?.replies;
  }

  #end(runId: string, status: string, end: RunEnd): void {
    this.#ended.set(runId, end);
    this.#waiting.delete(runId);
    for (const message of this.#messages.values()) {
      if (message.run_id === runId && message.status === "streaming") message.status = status;
    }
    if (this.#running === runId) this.#running = undefined;
  }
}

/** A message that followed one that was removed takes its place. */
function follow(message: Message, { message_id: id, parent_id, siblings }: Message): void {
  const others = siblings?.filter((other) => other !== id && other !== message.message_id);
  if (parent_id) message.parent_id = parent_id;
  else delete message.parent_id;
  if (others) message.siblings = [...others, message.message_id];
}
