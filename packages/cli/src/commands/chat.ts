import { createInterface } from "node:readline/promises";
import { type Conversation, createClient } from "@khala/client";
import { SCOPES } from "@khala/contracts";
import { serverUrl } from "../environment.ts";
import { EXIT, Failure } from "../failure.ts";
import { note, paint, print } from "../terminal.ts";
import { tokenSource } from "../tokens.ts";
import { Spoken } from "./chat_spoken.ts";

export interface ChatOptions {
  readonly url?: string;
  readonly token?: string;
  readonly conv: string;
  readonly policy?: "reject" | "queue" | "interrupt";
  readonly reasoning?: boolean;
  readonly json?: boolean;
}

/** `khala chat`: says one thing and prints the answer, or talks until the input ends. */
export async function chat(words: readonly string[], options: ChatOptions): Promise<void> {
  const url = serverUrl(options.url);
  const tokens = tokenSource(url, options.token, [SCOPES.chat]);
  // Asked first by itself, so that a server that is not there is told as such.
  let first: string | undefined = await tokens.get();
  const client = createClient({
    url,
    token: async () => {
      const token = first ?? (await tokens.get());
      first = undefined;
      return token;
    },
  });
  const conversation = client.conversation(options.conv);
  const stopping = new AbortController();
  const stop = () => stopping.abort();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
  try {
    if (words.length > 0) await say(conversation, words.join(" "), options, stopping.signal);
    else await talk(conversation, options, stopping.signal);
  } finally {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.off(signal, stop);
    client.close();
  }
}

async function talk(conversation: Conversation, options: ChatOptions, signal: AbortSignal): Promise<void> {
  note(paint("dim", `# ${options.conv}; an empty line or Ctrl-D ends it`, process.stderr));
  const input = createInterface({
    input: process.stdin,
    output: process.stderr,
    terminal: process.stdin.isTTY,
  });
  try {
    while (!signal.aborted) {
      const line = await input.question(paint("bold", "you: ", process.stderr), { signal }).catch(ended);
      if (!line?.trim()) return;
      await say(conversation, line, options, signal);
    }
  } finally {
    input.close();
  }
}

/** The input was closed, or the person has had enough: both are an end, not an error. */
function ended(error: unknown): undefined {
  const { name, code } = error as NodeJS.ErrnoException;
  if (name === "AbortError" || code === "ERR_USE_AFTER_CLOSE") return undefined;
  throw error;
}

/** Sends a message and prints what its run says, until the run ends. Ctrl-C stops the run, here and on every device. */
async function say(
  conversation: Conversation,
  message: string,
  options: ChatOptions,
  signal: AbortSignal,
): Promise<void> {
  const spoken = new Spoken(options);
  const over = Promise.withResolvers<void>();
  let runId: string | undefined;
  const look = () => {
    if (runId === undefined) return;
    if (spoken.hear(conversation.state(), runId)) over.resolve();
  };
  const unsubscribe = conversation.subscribe(look);
  const stop = () => conversation.stop().catch(over.reject);
  signal.addEventListener("abort", stop);
  try {
    ({ run_id: runId } = await conversation.send(message, options.policy ? { policy: options.policy } : {}));
    look();
    await over.promise;
  } finally {
    signal.removeEventListener("abort", stop);
    unsubscribe();
  }
  if (options.json) print(JSON.stringify({ run_id: runId, ...spoken.result() }));
  const { status, error } = spoken.result();
  if (status === "failed")
    throw new Failure(`The run failed: ${error ?? "no reason was given"}`, EXIT.failed);
  if (status === "stopped") note(paint("dim", "# stopped", process.stderr));
}
