import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { KhalaError } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";
import type { GatewayMetrics } from "../metrics.ts";

/** The target of a handshake; null when it cannot be read. */
export function addressOf(request: IncomingMessage): URL | null {
  return URL.parse(request.url ?? "/", "http://socket");
}

/** Refuses a handshake and closes. Phoenix clients expect 403 when they are denied. */
export function refuseHandshake(
  stream: Duplex,
  error: unknown,
  context: Context,
  metrics: GatewayMetrics,
): void {
  const known =
    error instanceof KhalaError ? error : new KhalaError("internal", "The handshake failed on the server.");
  if (known !== error) context.log.error({ err: error }, "a handshake failed");
  metrics.denials.add(1, { code: known.code });
  const { status } = known.meaning;
  endWithError(stream, known, status === 401 ? 403 : status);
}

/** Answers a connection that no route is in charge of, and closes it. */
export function endWithError(stream: Duplex, error: KhalaError, status: number = error.meaning.status): void {
  const body = JSON.stringify({ error });
  const head = [
    `HTTP/1.1 ${status} Refused`,
    "Connection: close",
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
  ];
  // A client that keeps its own half open must not keep ours.
  stream.once("finish", () => stream.destroy());
  stream.end(`${head.join("\r\n")}\r\n\r\n${body}`);
}
