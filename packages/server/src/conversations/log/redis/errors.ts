import { KhalaError } from "@khala/contracts";

/** The consequence of a failed command for the next step. */
export type RedisFailure =
  /** A redirection: another node owns the slot, or serves this one command. Not executed. */
  | { readonly kind: "moved" | "ask"; readonly address: string }
  /** Not executed: temporarily refused, a replica, or an unknown script. */
  | { readonly kind: "try_again" | "readonly" | "noscript" | "unsent" }
  /** The connection broke before the reply: the command may have been executed. */
  | { readonly kind: "lost" }
  /** An error reply to the command itself. */
  | { readonly kind: "answer" };

const TRY_AGAIN = new Set(["TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"]);

/** The connection was closed before the command was sent. */
export class NotSent extends Error {
  override readonly name = "NotSent";
}

/** Classifies a failed command. */
export function failureOf(error: Error): RedisFailure {
  if (error.name === "ReplyError") {
    const code = codeOf(error);
    if (code === "MOVED" || code === "ASK") {
      const address = error.message.split(" ")[2] ?? "";
      return { kind: code === "MOVED" ? "moved" : "ask", address };
    }
    if (TRY_AGAIN.has(code)) return { kind: "try_again" };
    if (code === "READONLY") return { kind: "readonly" };
    if (code === "NOSCRIPT") return { kind: "noscript" };
    return { kind: "answer" };
  }
  const unsent = error instanceof NotSent || error.message.includes("enableOfflineQueue");
  return { kind: unsent ? "unsent" : "lost" };
}

/** The error's code. Up to Redis 6.2, errors from scripts have it inside the message. */
function codeOf({ message }: Error): string {
  return /(?:^|: ?-)([A-Z]+) /.exec(message.startsWith("ERR ") ? message.slice(4) : message)?.[1] ?? "ERR";
}

/** The error of a failed command for the log's callers. */
export function redisError(error: Error, server: string): Error {
  if (error instanceof KhalaError) return error;
  // Not the client's error itself: it contains the command's arguments, which are users' messages.
  const failure = failureOf(error);
  if (failure.kind === "lost")
    return unavailable(`The connection to Redis (${server}) broke before a reply.`);
  if (failure.kind !== "answer")
    return unavailable(`Redis (${server}) is not available at the moment: ${firstLine(error)}.`);
  switch (codeOf(error)) {
    case "OOM":
      return new KhalaError(
        "overloaded",
        `Redis (${server}) is full: it uses more than its maxmemory. Raise maxmemory, or keep conversations for a shorter time.`,
        { retry_after_ms: 5_000 },
      );
    case "LOADING":
    case "BUSY":
    case "MISCONF":
    case "NOREPLICAS":
    case "NOAUTH":
    case "NOPERM":
    case "WRONGPASS":
      return unavailable(`Redis (${server}) refused the command: ${firstLine(error)}.`);
    default:
      return new KhalaError("internal", `Redis (${server}) answered with an error: ${firstLine(error)}.`);
  }
}

/** The log is not available now; a retry may succeed. */
export function unavailable(message: string): KhalaError {
  return new KhalaError("unavailable", `${message} Try again soon.`, { retry_after_ms: 1_000 });
}

function firstLine({ message }: Error): string {
  return message
    .split("\n", 1)[0]!
    .replace(/ script: .*$/, "")
    .replace(/\.$/, "");
}
