import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { type Conversation, type ConversationView, createClient } from "@khala/client";
import { KhalaError, SCOPES } from "@khala/contracts";
import { callServer, ServerRefusal } from "../client/call_server.ts";
import { defaultConversation } from "../client/default_conversation.ts";
import { type ServerOptions, tokenExpired, tokenSource } from "../client/tokens.ts";
import { COMMAND, dataFolder, serverUrl } from "../environment.ts";
import { EXIT, explain, Failure } from "../failure.ts";
import { note, paint, print } from "../terminal/terminal.ts";

export interface ChatOptions extends ServerOptions {
  /** Unless given, one of the caller's own. */
  readonly conv?: string;
  readonly policy?: "reject" | "queue" | "interrupt";
  readonly reasoning?: boolean;
}

/** `khala chat`: sends one message and prints the answer, or chats until the input ends. */
export async function chat(words: readonly string[], options: ChatOptions): Promise<void> {
  const url = serverUrl(options.url);
  const tokens = tokenSource(url, options.token, [SCOPES.chat]);
  let first: string | undefined = await tokens.get();
  const convId = options.conv ?? ownConversation(url, first, words.length > 0);
  const client = createClient({
    url,
    token: async () => {
      const token = first ?? (await tokens.get());
      first = undefined;
      return token;
    },
  });
  const conversation = client.conversation(convId);
  const stopping = new AbortController();
  const stop = () => stopping.abort();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
  const stopRun = async (run_id: string) => {
    const path = `/chat/${encodeURIComponent(convId)}/stop`;
    await callServer(url, path, { token: await tokens.get(), body: { run_id } });
  };
  try {
    // Called before the socket opens, so that an unreachable server is reported as such; a new token needed a call already.
    if (!tokens.renewable) await callServer(url, "/chat?limit=1", { token: first });
    const chatting: Chatting = { conversation, options, signal: stopping.signal, stopRun };
    if (words.length > 0) await say(chatting, words.join(" "));
    else await talk(chatting, convId, stop);
  } catch (error) {
    const refused = error instanceof KhalaError || error instanceof ServerRefusal;
    const expired = refused && error.code === "token_expired" && !tokens.renewable;
    if (expired) throw tokenExpired();
    // Its cause is on the way to the server, not the server's database.
    const away = error instanceof KhalaError && error.code === "unavailable";
    throw away ? new Failure(error.message, EXIT.unreachable, { cause: error }) : error;
  } finally {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.off(signal, stop);
    client.close();
  }
}

/** The caller's own conversation. A new one is named, so that other devices can follow it. */
function ownConversation(url: string, token: string, name: boolean): string {
  const { convId, isNew } = defaultConversation({ folder: dataFolder(), url, token, newId: randomUUID });
  if (isNew && name) note(paint("dim", `# ${convId}; follow it with --conv`, process.stderr));
  return convId;
}

/** A conversation in this terminal. */
interface Chatting {
  readonly conversation: Conversation;
  readonly options: ChatOptions;
  /** Aborts on Ctrl-C. */
  readonly signal: AbortSignal;
  readonly stopRun: (runId: string) => Promise<void>;
}

/** How long Ctrl-C waits for the answer to a message that is under way. */
const STOP_MS = 5_000;
/** Refusals of one message, after which the next one may be accepted. */
const OF_ONE_MESSAGE: readonly string[] = [
  "conversation_busy",
  "limit_exceeded",
  "payload_too_large",
  "invalid_request",
];

/** A run that failed. The conversation goes on. */
class RunFailure extends Failure {}

/** Sends each line of the input as a message, after the answer to the one before. */
async function talk(chatting: Chatting, convId: string, stop: () => void): Promise<void> {
  const { isTTY } = process.stdin;
  note(paint("dim", `# ${convId}${isTTY ? "; an empty line or Ctrl-D ends it" : ""}`, process.stderr));
  const input = createInterface({
    input: process.stdin,
    output: process.stderr,
    terminal: isTTY,
    prompt: paint("bold", "you: ", process.stderr),
  });
  // On a terminal the interface receives Ctrl-C instead of the process.
  input.on("SIGINT", stop);
  // Ctrl-D closes it, also during an answer; a prompt would throw then.
  let closed = false;
  input.once("close", () => {
    closed = true;
  });
  const close = () => input.close();
  chatting.signal.addEventListener("abort", close);
  try {
    if (isTTY) input.prompt();
    for await (const line of input) {
      if (line.trim()) await (isTTY ? sayAndGoOn(chatting, line) : say(chatting, line));
      else if (isTTY) return;
      if (chatting.signal.aborted) return;
      if (isTTY && !closed) input.prompt();
    }
  } finally {
    chatting.signal.removeEventListener("abort", close);
    input.close();
  }
}

/** A person at a terminal may send the next message after one that failed. */
async function sayAndGoOn(chatting: Chatting, message: string): Promise<void> {
  try {
    await say(chatting, message);
  } catch (error) {
    const goesOn =
      error instanceof RunFailure || (error instanceof KhalaError && OF_ONE_MESSAGE.includes(error.code));
    if (!goesOn) throw error;
    note(`${paint("red", "khala:", process.stderr)} ${explain(error).message}`);
  }
}

/** Sends a message and prints the run's output until it ends. Ctrl-C stops the run, here and on every device. */
async function say({ conversation, options, signal, stopRun }: Chatting, message: string): Promise<void> {
  const printer = new RunPrinter(options);
  const noteWait = waitNotes(conversation.id, options);
  const over = Promise.withResolvers<void>();
  let runId: string | undefined;
  const update = () => {
    const view = conversation.state();
    // A refused token ends it: the client would wait for another one.
    if (view.health === "error" && view.error) return over.reject(view.error);
    if (runId === undefined) return;
    if (printer.update(view, runId)) over.resolve();
    else if (view.run?.run_id === runId) noteWait(view);
  };
  const unsubscribe = conversation.subscribe(update);
  const sent = conversation.send(message, options.policy ? { policy: options.policy } : {});
  const stop = () => {
    sent.then(({ run_id }) => stopRun(run_id)).catch(over.reject);
    const late = "The server did not answer in time, so the message may still be answered.";
    const giveUp = () => runId === undefined && over.reject(new Failure(late, EXIT.unreachable));
    AbortSignal.timeout(STOP_MS).addEventListener("abort", giveUp);
  };
  signal.addEventListener("abort", stop);
  try {
    const answer = await Promise.race([sent, over.promise]);
    runId = answer?.run_id;
    update();
    await over.promise;
  } finally {
    signal.removeEventListener("abort", stop);
    unsubscribe();
  }
  if (options.json) print(JSON.stringify({ run_id: runId, ...printer.result() }));
  const { status, error } = printer.result();
  if (status === "failed") throw new RunFailure(`The run failed: ${error ?? "no reason given"}`, EXIT.failed);
  if (status === "stopped") note(paint("dim", "# stopped", process.stderr));
}

/** Notes each tool call that the run waits for, once, and how to decide it. */
function waitNotes(convId: string, { url }: ChatOptions): (view: ConversationView) => void {
  const noted = new Set<string | undefined>();
  return ({ run, messages }) => {
    for (const { tool_call_id, tool, waits_for } of run?.waits_for ?? []) {
      if (noted.has(tool_call_id)) continue;
      noted.add(tool_call_id);
      const parts = messages.flatMap((message) => message.parts ?? []);
      const call = parts.find((part) => part.tool?.tool_call_id === tool_call_id)?.tool;
      const what = `${tool} ${JSON.stringify(call?.input ?? null)}`;
      const approve = `${COMMAND} approvals approve ${convId}/${tool_call_id}${url ? ` --url ${url}` : ""}`;
      const how =
        waits_for === "approval"
          ? `needs an approval. Decide in another terminal, with approve or deny: ${approve}`
          : `waits for a client's output: POST /chat/${convId}/tools/${tool_call_id} {"output": …}`;
      note(paint("dim", `# ${what} ${how}`, process.stderr));
    }
  };
}

/** The result of a run. */
export interface Result {
  readonly status: "running" | "finished" | "failed" | "stopped";
  readonly text: string;
  readonly error?: string;
}

/** Prints the output of a run as it grows, each part once. */
export class RunPrinter {
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

  /** Prints new events; returns whether the run has ended. */
  update(state: ConversationView, runId: string): boolean {
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

  /** The part of a growing text that is new. A text that was replaced, after a resync, is printed again on a new line. */
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

/** How the run ended. A lost connection may have missed the end, but the messages have their status. */
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
