/** What a code of the error table means for each transport. */
export interface ErrorMeaning {
  /** HTTP status of a response that carries the code. */
  readonly status: number;
  /** WebSocket close code when the code ends a socket. */
  readonly close: number;
  /** Whether the same request may succeed later, unchanged. */
  readonly retryable: boolean;
}

const meaning = (status: number, close: number, retryable = false): ErrorMeaning => ({
  status,
  close,
  retryable,
});

/** The one error table. Every error that leaves Khala carries one of these codes. */
export const ERRORS = {
  invalid_request: meaning(400, 4400),
  unknown_event_type: meaning(400, 4400),
  missing_authorization: meaning(401, 4401),
  invalid_token: meaning(401, 4401),
  token_expired: meaning(401, 4401),
  token_not_yet_valid: meaning(401, 4401),
  missing_jti: meaning(401, 4401),
  token_revoked: meaning(401, 4401),
  forbidden_topic: meaning(403, 4403),
  missing_scope: meaning(403, 4403),
  missing_role: meaning(403, 4403),
  subject_mismatch: meaning(403, 4403),
  origin_not_allowed: meaning(403, 4403),
  unsupported_protocol_version: meaning(403, 4403),
  stale_producer: meaning(403, 4403),
  not_found: meaning(404, 4404),
  sequence_conflict: meaning(409, 4409),
  event_conflict: meaning(409, 4409),
  stream_conflict: meaning(409, 4409),
  stream_closed: meaning(409, 4409),
  artifact_conflict: meaning(409, 4409),
  lease_lost: meaning(409, 4409),
  conversation_busy: meaning(409, 4409, true),
  idempotency_conflict: meaning(409, 4409),
  run_begun: meaning(409, 4409),
  already_decided: meaning(409, 4409),
  stale_cursor: meaning(410, 4410),
  stream_gone: meaning(410, 4410),
  payload_too_large: meaning(413, 1009),
  upgrade_required: meaning(426, 4426),
  limit_exceeded: meaning(429, 4429, true),
  slow_consumer: meaning(503, 1013, true),
  idle_timeout: meaning(408, 1001, true),
  overloaded: meaning(503, 1013, true),
  unavailable: meaning(503, 1013, true),
  shutting_down: meaning(503, 1012, true),
  internal: meaning(500, 1011, true),
} as const satisfies Record<string, ErrorMeaning>;

/** A code of the error table. */
export type ErrorCode = keyof typeof ERRORS;

/** What an error may say beside its code and message. */
export interface ErrorDetails {
  readonly field?: string;
  readonly retry_after_ms?: number;
  readonly current_seq?: string;
  readonly topics?: readonly StaleTopicDetail[];
  /** What is wrong with each part of a request that holds several. */
  readonly items?: readonly { readonly index: number; readonly field: string; readonly message: string }[];
}

/** One topic of a stale_cursor answer. */
export interface StaleTopicDetail {
  readonly topic: string;
  readonly sent: { readonly epoch: string; readonly watermark: string };
  readonly floor: { readonly epoch: string; readonly watermark: string };
}

/** An error with a code of the table: the only kind that is shown to a client. */
export class KhalaError extends Error {
  override readonly name = "KhalaError";
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.details = details;
  }

  /** The meaning of this error's code. */
  get meaning(): ErrorMeaning {
    return ERRORS[this.code];
  }

  /** The JSON that clients see. */
  toJSON(): { code: ErrorCode; message: string } & ErrorDetails {
    return { code: this.code, message: this.message, ...this.details };
  }
}
