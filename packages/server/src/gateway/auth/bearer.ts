import type { IncomingHttpHeaders } from "node:http";
import { phoenix } from "@khala/contracts";

/** The parts of a socket's handshake that may carry a token. */
export interface SocketHandshake {
  readonly params: URLSearchParams;
  /** The `Sec-WebSocket-Protocol` header. */
  readonly protocols: string | undefined;
}

/** The token of a handshake, and the subprotocol that the answer must name. */
export interface SocketToken {
  readonly token: string | undefined;
  readonly subprotocol: string | undefined;
}

/** The token of an `Authorization: Bearer` header. */
export function bearerToken(headers: Pick<IncomingHttpHeaders, "authorization">): string | undefined {
  return /^bearer +(\S+) *$/i.exec(headers.authorization ?? "")?.[1];
}

/** The token of a handshake: Phoenix's `authToken`, which travels as a subprotocol, or else the `token` param. */
export function socketToken({ params, protocols }: SocketHandshake): SocketToken {
  const offered = (protocols ?? "").split(",").map((name) => name.trim());
  const encoded = offered.find((name) => name.startsWith(phoenix.TOKEN_PROTOCOL));
  return {
    token: encoded ? decode(encoded.slice(phoenix.TOKEN_PROTOCOL.length)) : params.get("token") || undefined,
    subprotocol: offered.includes(phoenix.PROTOCOL) ? phoenix.PROTOCOL : undefined,
  };
}

// Phoenix calls it base64url and sends plain base64 without padding; Node's decoder reads both alphabets.
function decode(text: string): string | undefined {
  return Buffer.from(text, "base64").toString("utf8") || undefined;
}
