import { KhalaError } from "@khala/contracts";
import type { ChatRequestJson, ChatResponseJson } from "@khala/contracts/conversation/v1";
import { type Backoff, backoffMs } from "../connection/backoff.ts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";

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
