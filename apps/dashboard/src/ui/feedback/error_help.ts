/** What an error code means, why it happens, and what to do about it. */
export interface ErrorHelp {
  readonly title: string;
  readonly why: string;
  readonly fix: string;
}

const help = (title: string, why: string, fix: string): ErrorHelp => ({ title, why, fix });

const NEW_TOKEN = "Get a new token and sign in again.";
const RETRIES = "Nothing to do: the client retries. If it persists, check the server log and /readyz.";

const KNOWN: Readonly<Record<string, ErrorHelp>> = {
  invalid_request: help(
    "Invalid request",
    "A field is missing or has a value that is not allowed.",
    "Correct the field that the message names, then send it again.",
  ),
  missing_authorization: help("No token", "This server requires a token.", NEW_TOKEN),
  invalid_token: help(
    "Invalid token",
    "The token is malformed, or signed with a key this server does not know.",
    "Create one with khala token, or get one from your issuer.",
  ),
  token_expired: help("Token expired", "Tokens are short-lived.", NEW_TOKEN),
  token_revoked: help("Token revoked", "The token was revoked by its issuer.", NEW_TOKEN),
  token_not_yet_valid: help(
    "Token not valid yet",
    "Its start time is in the future: the clock of the issuer or of the server is wrong.",
    "Compare both clocks. khala doctor checks the server's.",
  ),
  forbidden_topic: help(
    "Topic not allowed",
    "The token has no scope for this topic.",
    "Use a token whose scopes include the topic.",
  ),
  missing_scope: help(
    "Missing scope",
    "The token lacks a required scope.",
    "Use a token with the scope named in the message.",
  ),
  missing_role: help(
    "Missing role",
    "Your role in this conversation does not allow this.",
    "Ask the owner for another role.",
  ),
  not_found: help(
    "Not found",
    "It was deleted, removed by retention, belongs to another org, or the server has no such route.",
    "Check the address. The link may be older than its target.",
  ),
  sequence_conflict: help(
    "Sequence conflict",
    "Another writer appended to the stream first.",
    "Read the stream again, then retry.",
  ),
  artifact_conflict: help(
    "Artifact conflict",
    "An artifact with this id and version exists with different content.",
    "Publish it with a higher version or a new id.",
  ),
  conversation_busy: help(
    "Conversation busy",
    "A run is in progress, and a conversation has one run at a time.",
    "Wait for it, stop it, or send with the policy “queue”.",
  ),
  idempotency_conflict: help(
    "Idempotency conflict",
    "The idempotency key was already used for other content.",
    "Send the new content with a new key.",
  ),
  run_begun: help(
    "Already begun",
    "The message is no longer queued.",
    "Stop the run, or send another message.",
  ),
  stale_cursor: help(
    "Stale cursor",
    "Retention removed updates after this position.",
    "Nothing to do: the client fetches the full state again.",
  ),
  payload_too_large: help(
    "Payload too large",
    "The request exceeds the size limit.",
    "Send less data per request.",
  ),
  limit_exceeded: help("Limit exceeded", "A server limit was reached.", "Wait a moment, then retry."),
  slow_consumer: help(
    "Slow consumer",
    "The server sent more than this connection could take.",
    "Nothing to do: the client resumes where it stopped. Subscribe to fewer topics if it happens often.",
  ),
  idle_timeout: help(
    "Idle timeout",
    "No heartbeat arrived in time.",
    "Nothing to do: the client reconnects.",
  ),
  overloaded: help("Server overloaded", "The server is at its limit.", RETRIES),
  unavailable: help(
    "Server not reachable",
    "The server is stopped, or the network or one of its backends is down.",
    RETRIES,
  ),
  shutting_down: help("Server shutting down", "The server is restarting, or was stopped.", RETRIES),
  unknown_event_type: help(
    "Unknown event type",
    "The stream has no events of this type.",
    "Use a type that the message lists, or serve a model that knows it.",
  ),
  missing_jti: help(
    "Token without an id",
    "A token without a jti cannot be revoked.",
    "Issue tokens with a jti.",
  ),
  subject_mismatch: help(
    "Wrong person",
    "A socket got a token of another subject or org, or an approval is up to somebody else.",
    "Open a new socket with that token, or let another person decide.",
  ),
  origin_not_allowed: help(
    "Page not allowed",
    "Pages of this origin may not connect.",
    "Add the origin to KHALA_ORIGINS.",
  ),
  unsupported_protocol_version: help(
    "Protocol not supported",
    "The socket was not opened with vsn=2.0.0.",
    "Use Phoenix Channels V2.",
  ),
  stale_producer: help(
    "Producer replaced",
    "A newer instance of the stream's producer has written.",
    "Stop this one, or begin a higher epoch.",
  ),
  event_conflict: help(
    "Event id used already",
    "An event id is known with other content, or only some of several are known.",
    "Send new events alone, with ids of their own.",
  ),
  stream_conflict: help(
    "Stream exists",
    "There is a durable stream with another configuration or content type.",
    "Use the stream's own, or another path.",
  ),
  stream_closed: help(
    "Stream closed",
    "Nothing can be added to a closed durable stream.",
    "Create another one.",
  ),
  lease_lost: help(
    "Lease lost",
    "The worker's lease on the task ended, or the task was settled.",
    "Drop the work, and claim again.",
  ),
  already_decided: help(
    "Already decided",
    "Somebody decided otherwise, or the request was withdrawn with its run.",
    "Read who decided what.",
  ),
  stream_gone: help(
    "Stream deleted",
    "The durable stream was deleted while it had forks.",
    "Read a fork, or create another one.",
  ),
  upgrade_required: help(
    "No WebSocket",
    "The path of a WebSocket was requested without an upgrade.",
    "Connect with a WebSocket client. A proxy in between must pass upgrades on.",
  ),
  internal: help(
    "Internal error",
    "The server failed to handle the request.",
    "Find the request in the server log and report it.",
  ),
};

/** The help for a code; an unknown one gets a generic text. */
export function errorHelp(code: string): ErrorHelp {
  const unknown = help("Request failed", "No help for this code.", "See docs/protocol/ERRORS.md.");
  return KNOWN[code] ?? unknown;
}

/** Whether there is help for this code. */
export function isKnownError(code: string): boolean {
  return Object.hasOwn(KNOWN, code);
}
