import { KhalaError } from "@khala/contracts";

/** What a failed command means for the next step. */
export type RedisFailure =
  /** Another node has the slot now, or has it for this one command. Nothing was done. */
  | { readonly kind: "moved" | "ask"; readonly address: string }
  /** Nothing was done: the server cannot just now, is a replica, or does not know the script. */
  | { readonly kind: "later" | "readonly" | "noscript" | "unsent" }
  /** The connection broke before the answer came: the command may have been done. */
  | { readonly kind: "lost" }
  /** The server's answer to what was asked. */
  | { readonly kind: "answer" };

const LATER = new Set(["TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"]);

/** The connection was closed before the command was sent. */
export class NotSent extends Error {
  override readonly name = "NotSent";
}

/** Tells apart why a command failed. */
export function failureOf(error: Error): RedisFailure {
  if (error.name === "ReplyError") {
    const code = codeOf(error);
    if (code === "MOVED" || code === "ASK") {
      const address = error.message.split(" ")[2] ?? "";
      return { kind: code === "MOVED" ? "moved" : "ask", address };
    }
    if (LATER.has(code)) return { kind: "later" };
    if (code === "READONLY") return { kind: "readonly" };
    if (code === "NOSCRIPT") return { kind: "noscript" };
    return { kind: "answer" };
  }
  const unsent = error instanceof NotSent || error.message.includes("enableOfflineQueue");
  return { kind: unsent ? "unsent" : "lost" };
}

/** The error's code; up to Redis 6.2 one that was raised in a script stands inside the message. */
function codeOf({ message }: Error): string {
  return /(?:^|: ?-)([A-Z]+) /.exec(message.startsWith("ERR ") ? message.slice(4) : message)?.[1] ?? "ERR";
}

/** A failed command as those who called the log may see it. */
export function redisError(error: Error, server: string): Error {
  if (error instanceof KhalaError) return error;
  // The client's error knows the command with its arguments, which are what people wrote: it is not passed on.
  const failure = failureOf(error);
  if (failure.kind === "lost")
    return unavailable(`The connection to Redis (${server}) broke before the answer came.`);
  if (failure.kind !== "answer")
    return unavailable(`Redis (${server}) cannot do this now: ${firstLine(error)}.`);
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
      return unavailable(`Redis (${server}) refused this: ${firstLine(error)}.`);
    default:
      return new KhalaError("internal", `Redis (${server}) answered with an error: ${firstLine(error)}.`);
  }
}

/** The log cannot be had now; the same may work soon. */
export function unavailable(message: string): KhalaError {
  return new KhalaError("unavailable", `${message} Try again soon.`, { retry_after_ms: 1_000 });
}

function firstLine({ message }: Error): string {
  return message
    .split("\n", 1)[0]!
    .replace(/ script: .*$/, "")
    .replace(/\.$/, "");
}
