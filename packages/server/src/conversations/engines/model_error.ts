import { PublicError } from "./public_error.ts";

const TOO_LONG = /context.?(length|window)|prompt is too long|too many (input )?tokens|input is too long/i;
const REFUSED = /content.?(policy|filter)|(safety|moderation) system|usage polic/i;
/** Too many requests, or no capacity: the same request may succeed in a moment. */
const BUSY: ReadonlySet<unknown> = new Set([429, 503, 529]);
const NETWORK =
  /^(ECONN|ENOTFOUND|EAI_AGAIN|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|UND_ERR_(CONNECT|SOCKET|HEADERS|BODY))/;
const MAX_CAUSES = 5;

/** The AI SDK's error, with a code and a sentence for end users where the reason is known. */
export function modelError(error: unknown): Error {
  const chain = causesOf(error);
  const known = chain.find((cause) => cause instanceof PublicError);
  if (known) return known;
  const status = chain.map(({ statusCode }) => statusCode).find((code) => typeof code === "number");
  if (BUSY.has(status))
    return new PublicError("The model is busy right now. Send the message again in a moment.", {
      code: "rate_limited",
      cause: error,
    });
  if (chain.some(({ message }) => TOO_LONG.test(String(message))))
    return new PublicError("The conversation is too long for the model. Start a new one.", {
      code: "context_length",
      cause: error,
    });
  if (chain.some(({ message }) => REFUSED.test(String(message)))) return modelRefused(error);
  if (chain.some(({ code }) => NETWORK.test(String(code))))
    return new PublicError("The model cannot be reached right now. Send the message again in a moment.", {
      code: "network",
      cause: error,
    });
  if (chain.some(({ name }) => name === "AI_UnsupportedFunctionalityError"))
    return new PublicError(
      "The model cannot read a file of this conversation. Edit the message and remove the file.",
      {
        code: "refused",
        cause: error,
      },
    );
  return error instanceof Error ? error : new Error("The model failed.", { cause: error });
}

/** The failure for a finish reason; undefined when the answer is complete. */
export function finishError(reason: string, raw: string | undefined): Error | undefined {
  if (reason === "error") return new Error("the provider gave no reason");
  if (reason === "content-filter") return modelRefused(new Error(`The finish reason is ${raw ?? reason}.`));
  if (reason !== "interrupted") return undefined;
  // The stream ended, but not the answer.
  return new PublicError("The model's answer was cut off. Send the message again.", {
    code: "network",
    cause: new Error("The provider's stream ended without a finish reason."),
  });
}

function modelRefused(cause: unknown): PublicError {
  return new PublicError("The model refused to answer. Rephrase the message.", { code: "refused", cause });
}

interface Thrown {
  readonly name?: unknown;
  readonly message?: unknown;
  readonly statusCode?: unknown;
  readonly code?: unknown;
  readonly cause?: unknown;
  /** A field of the AI SDK's RetryError. */
  readonly lastError?: unknown;
}

function causesOf(error: unknown): Thrown[] {
  const chain: Thrown[] = [];
  for (let at = error; at !== undefined && at !== null && chain.length < MAX_CAUSES; ) {
    const thrown: Thrown = Object(at);
    chain.push(thrown);
    at = thrown.cause ?? thrown.lastError;
  }
  return chain;
}
