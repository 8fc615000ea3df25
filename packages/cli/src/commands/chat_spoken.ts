import type { ConversationView } from "@khala/client";
import { paint } from "../terminal.ts";

/** What came of a run. */
export interface Result {
  readonly status: "running" | "finished" | "failed" | "stopped";
  readonly text: string;
  readonly error?: string;
}

/** Prints what a run says as it comes: each word once, however often the state is looked at. */
export class Spoken {
  readonly #options: { readonly reasoning?: boolean; readonly json?: boolean };
  readonly #printed = new Map<string, string>();
  #midLine = false;
  #result: Result = { status: "running", text: "" };

  constructor(options: { readonly reasoning?: boolean; readonly json?: boolean }) {
    this.#options = options;
  }

  result(): Result {
    return this.#result;
  }

  /** Answers whether the run is over. */
  hear(state: ConversationView, runId: string): boolean {
    let text = "";
    let status: Result["status"] = "running";
    for (const message of state.messages) {
      if (message.run_id !== runId || message.role === "user") continue;
      message.parts?.forEach((part, i) => {
        const place = `${message.message_id}:${i}`;
        if (part.text !== undefined) {
          text += part.text;
          this.#more(place, part.text);
        } else if (part.reasoning !== undefined && this.#options.reasoning) {
          this.#more(place, part.reasoning, true);
        } else if (part.tool) {
          const { tool = "tool", output, error } = part.tool;
          const end = error ?? (output === undefined ? undefined : JSON.stringify(output));
          this.#line(place, `· ${tool}${end === undefined ? " …" : ` → ${end}`}`);
        }
      });
    }
    const outcome = outcomeOf(state, runId);
    if (outcome) {
      status = outcome.status;
      if (this.#midLine) this.#write("\n");
      this.#midLine = false;
    }
    this.#result = { status, text, ...(outcome?.error !== undefined && { error: outcome.error }) };
    return status !== "running";
  }

  /** The part of a growing text that is new. A text that was replaced, after a resync, begins again on a line of its own. */
  #more(place: string, text: string, dim = false): void {
    const before = this.#printed.get(place) ?? "";
    if (before === text) return;
    const grown = text.startsWith(before);
    if (!grown && this.#midLine) this.#write("\n");
    const more = grown ? text.slice(before.length) : text;
    this.#write(dim ? paint("dim", more) : more);
    this.#midLine = !more.endsWith("\n");
    this.#printed.set(place, text);
  }

  #line(place: string, text: string): void {
    if (this.#printed.get(place) === text) return;
    this.#write(`${this.#midLine ? "\n" : ""}${paint("cyan", text)}\n`);
    this.#midLine = false;
    this.#printed.set(place, text);
  }

  #write(text: string): void {
    if (!this.#options.json) process.stdout.write(text);
  }
}

/** How the run ended. A line that was lost meanwhile may have swallowed the end, but not what the messages came to. */
function outcomeOf(
  { outcome, run, messages }: ConversationView,
  runId: string,
): Pick<Result, "status" | "error"> | undefined {
  if (outcome?.run_id === runId)
    return { status: outcome.status, ...(outcome.message !== undefined && { error: outcome.message }) };
  if (run?.run_id === runId) return undefined;
  const last = messages.findLast((message) => message.run_id === runId && message.role !== "user");
  if (last?.status === "done") return { status: "finished" };
  return last?.status === "failed" || last?.status === "stopped" ? { status: last.status } : undefined;
}
