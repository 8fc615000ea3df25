import { KhalaError } from "@khala/contracts";
import type {
  ChatRequestJson,
  ChatResponseJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import { type Backoff, backoffMs } from "../connection/backoff.ts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";

export interface SendOptions {
  /** What happens when a run is under way: refused with `conversation_busy` (the default), after it, or instead of it. */
  readonly policy?: "reject" | "queue" | "interrupt";
  /** Made unless given: bring the one that was used before to send again what may have arrived. */
  readonly idempotencyKey?: string;
  readonly signal?: AbortSignal;
}

/** A message on its way, until its event has come. */
interface Sending {
  readonly text: string;
  readonly policy: SendOptions["policy"];
  /** Messages that said the same before: not this one. Undefined when the messages were not known yet. */
  readonly before: ReadonlySet<string | undefined> | undefined;
  message: TranscriptMessageJson;
  /** Known once the server has answered. */
  runId?: string;
}

const MAX_SENDING = 100;

type Messages = readonly TranscriptMessageJson[];

/** What this client says in a conversation: sent in order, each once however often it must be repeated, and shown at once. */
export class Outbox {
  readonly #convId: string;
  readonly #http: Http;
  readonly #environment: Environment;
  readonly #changed: () => void;
  readonly #closing = new AbortController();
  #sending: Sending[] = [];
  #last: Promise<unknown> = Promise.resolve();

  constructor(convId: string, http: Http, environment: Environment, changed: () => void) {
    this.#convId = convId;
    this.#http = http;
    this.#environment = environment;
    this.#changed = changed;
  }

  /** Whether something has not been answered yet. */
  get busy(): boolean {
    return this.#sending.some(({ runId }) => runId === undefined);
  }

  /** Resolves when the server has it. The message is not shown any more when it rejects. */
  async send(text: string, options: SendOptions, messages?: Messages): Promise<{ run_id: string }> {
    if (this.#sending.length >= MAX_SENDING)
      throw new KhalaError("limit_exceeded", "Too many messages are on their way. Wait for some to arrive.");
    const key = options.idempotencyKey ?? this.#environment.newId();
    const sending: Sending = {
      text,
      policy: options.policy,
      before: messages && new Set(messages.filter(says(text)).map(({ message_id }) => message_id)),
      message: {
        message_id: key,
        role: "user",
        run_id: "",
        parts: [{ text }],
        status: "sending",
        truncated: false,
      },
    };
    this.#sending.push(sending);
    this.#changed();
    // One after another, so that what a person says arrives in the order in which it was said.
    const { policy, signal } = options;
    const body = { conv_id: this.#convId, message: text, idempotency_key: key, ...(policy && { policy }) };
    const signals = [...(signal ? [signal] : []), this.#closing.signal];
    const turn = this.#last.then(() => deliver(this.#http, this.#environment, body, signals));
    this.#last = turn.catch(() => undefined);
    try {
      const { run_id = "" } = await turn;
      sending.runId = run_id;
      if (sending.policy === "queue") sending.message = { ...sending.message, run_id, status: "queued" };
      return { run_id };
    } catch (error) {
      this.#sending = this.#sending.filter((other) => other !== sending);
      throw error;
    } finally {
      this.#changed();
    }
  }

  /** The messages of the log, and after them what is on its way: none of it twice. */
  shown(messages: Messages): Messages {
    if (this.#sending.length === 0) return messages;
    const claimed = new Set<string | undefined>();
    this.#sending = this.#sending.filter((sending) => {
      const arrived = sending.runId !== undefined && messages.findLast(isOf(sending.runId));
      if (arrived) claimed.add(arrived.message_id);
      return !arrived;
    });
    const waiting = this.#sending.filter(({ runId, text, before }) => {
      if (runId !== undefined) return true;
      // Its event may be faster than its answer; a text that nobody said before is ours until the answer says otherwise.
      const candidates = before
        ? messages
        : messages.slice(messages.findLastIndex(({ role }) => role === "user"));
      const found = candidates.find(
        (message) =>
          says(text)(message) && !before?.has(message.message_id) && !claimed.has(message.message_id),
      );
      if (found) claimed.add(found.message_id);
      return !found;
    });
    return waiting.length === 0 ? messages : [...messages, ...waiting.map(({ message }) => message)];
  }

  /** What the server had accepted was in a log that is gone, or is in the snapshot that replaces it. */
  forgetAccepted(): void {
    this.#sending = this.#sending.filter(({ runId, policy }) => runId === undefined || policy === "queue");
  }

  /** Sends nothing any more. */
  close(): void {
    this.#closing.abort(
      new KhalaError("unavailable", "The client was closed before the message was answered."),
    );
  }
}

function says(text: string) {
  return ({ role, parts }: TranscriptMessageJson) => role === "user" && parts?.[0]?.text === text;
}

function isOf(runId: string) {
  return ({ role, run_id }: TranscriptMessageJson) => role === "user" && run_id === runId;
}

/** How long a message is sent again when its answer is lost. */
const WITHIN_MS = 60_000;
const AGAIN: Backoff = { baseMs: 250, capMs: 5_000 };

/** Sends a message until the server has answered. Its idempotency key makes sure that it counts once. */
export async function deliver(
  http: Http,
  environment: Environment,
  body: ChatRequestJson & { readonly idempotency_key: string },
  signals: readonly AbortSignal[],
): Promise<ChatResponseJson> {
  const until = environment.now() + WITHIN_MS;
  // `AbortSignal.any`, which not every engine of a phone has.
  const { signal, abort } = anyOf(signals);
  try {
    for (let attempt = 1; ; attempt++) {
      if (signal.aborted) throw givenUp(signals);
      try {
        return (await http.request("POST", "/chat", { body, signal })).body as ChatResponseJson;
      } catch (error) {
        if (signal.aborted) throw givenUp(signals);
        if (!mayBeRepeated(error) || environment.now() >= until) throw error;
        const random = () => environment.random();
        await pause(environment, backoffMs(attempt, random, AGAIN, error.details.retry_after_ms), signal);
      }
    }
  } finally {
    for (const one of signals) one.removeEventListener("abort", abort);
  }
}

/** A busy conversation stays so for as long as its run: that is for the person to decide. */
function mayBeRepeated(error: unknown): error is KhalaError {
  return error instanceof KhalaError && error.meaning.retryable && error.code !== "conversation_busy";
}

function anyOf(signals: readonly AbortSignal[]) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  for (const signal of signals) {
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
  }
  return { signal: controller.signal, abort };
}

function givenUp(signals: readonly AbortSignal[]): unknown {
  const reason: unknown = signals.find(({ aborted }) => aborted)?.reason;
  return reason ?? new KhalaError("unavailable", "The message was given up before it was answered.");
}

/** Resolves after the time, or earlier when the signal aborts. */
function pause(environment: Environment, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      cancel();
      signal.removeEventListener("abort", end);
      resolve();
    };
    const cancel = environment.timer(ms, end);
    signal.addEventListener("abort", end);
  });
}
