import { ERRORS, type ErrorCode, KhalaError } from "@khala/contracts";

/** The action after a close: retry, renew the token, or stop. */
export type Verdict = "lost" | "refused" | "denied";

/** Error codes by close code, for a missing or unknown reason; see docs/protocol/ERRORS.md. */
const BY_CLOSE: Readonly<Record<number, ErrorCode>> = {
  1001: "shutting_down",
  1009: "payload_too_large",
  1011: "internal",
  1012: "shutting_down",
  1013: "unavailable",
  4400: "invalid_request",
  4401: "invalid_token",
  4403: "missing_scope",
  4404: "not_found",
  4426: "upgrade_required",
  4429: "limit_exceeded",
};

/** The text as a code of the error table, if it is one. */
export function errorCode(text: unknown): ErrorCode | undefined {
  return typeof text === "string" && Object.hasOwn(ERRORS, text) ? (text as ErrorCode) : undefined;
}

/** Why the socket was closed. */
export function closeError(code: number, reason: string): KhalaError {
  const known = errorCode(reason) ?? BY_CLOSE[code] ?? "unavailable";
  return new KhalaError(known, MESSAGES[known] ?? `The server closed the connection (${reason || code}).`);
}

/** The action after an error. */
export function verdictOf(error: KhalaError): Verdict {
  const { status, retryable } = error.meaning;
  if (status === 401) return "refused";
  // An oversized frame is not sent again, and a stale position is replaced.
  return retryable || error.code === "payload_too_large" || error.code === "stale_cursor" ? "lost" : "denied";
}

const MESSAGES: Partial<Record<ErrorCode, string>> = {
  token_expired: "The token has expired. A new one is fetched.",
  token_revoked: "The token was revoked. Sign in again.",
  invalid_token:
    "The server does not accept the token. Get a new one, or check that issuer and server have the same settings.",
  shutting_down: "The server is restarting.",
  slow_consumer: "This client read too slowly and was disconnected.",
  unavailable: "The server cannot be reached.",
};
