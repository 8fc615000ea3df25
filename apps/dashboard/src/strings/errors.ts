/** Why an error of the table happens, and what to do about it, for people who look at the dashboard. */
export interface ErrorWords {
  readonly title: string;
  readonly why: string;
  readonly todo: string;
}

const words = (title: string, why: string, todo: string): ErrorWords => ({ title, why, todo });

const TOKEN = "Get a new token and sign in again.";
const WAIT = "Nothing: it is tried again by itself. If it stays, look at the server's log and at /readyz.";

const KNOWN: Readonly<Record<string, ErrorWords>> = {
  invalid_request: words(
    "The request was refused",
    "A field is missing or has a value that cannot be used.",
    "Change what the message names, then send it again.",
  ),
  missing_authorization: words("No token was sent", "This server wants to know who asks.", TOKEN),
  invalid_token: words(
    "The token is not accepted",
    "It is malformed, or signed with a key that this server does not know.",
    "Run khala token to make one, or get one from your issuer.",
  ),
  token_expired: words("The token has expired", "Tokens live for a short time.", TOKEN),
  token_revoked: words("The token was revoked", "Somebody withdrew it.", TOKEN),
  token_not_yet_valid: words(
    "The token is not valid yet",
    "Its start lies in the future: the clock of the issuer or of the server is wrong.",
    "Compare both clocks; khala doctor checks the server's.",
  ),
  forbidden_topic: words(
    "The topic is not allowed",
    "The token has no scope for it.",
    "Use a token whose scopes name the topic.",
  ),
  missing_scope: words(
    "The token does not allow this",
    "It lacks a scope.",
    "Use a token that has the scope named in the message.",
  ),
  not_found: words(
    "It is not there",
    "It was removed, retention took it, it belongs to another org, or this server does not have the route.",
    "Check the address. A link may be older than what it points at.",
  ),
  sequence_conflict: words(
    "Somebody was first",
    "The stream moved on meanwhile.",
    "Read it again, then repeat.",
  ),
  artifact_conflict: words(
    "The artifact exists with another content",
    "An id and version stand for one content for ever.",
    "Publish it with a higher version or a new id.",
  ),
  conversation_busy: words(
    "The conversation is busy",
    "A run is under way, and one runs at a time.",
    "Wait for its end, stop it, or send with the policy “queue”.",
  ),
  stale_cursor: words(
    "The position is too old",
    "Retention took what follows it.",
    "Nothing: the whole state is fetched again by itself.",
  ),
  payload_too_large: words("It is too large", "Bodies are bounded.", "Send less at a time."),
  limit_exceeded: words(
    "Too much at a time",
    "A limit of the server was reached.",
    "Wait a moment, then try again.",
  ),
  slow_consumer: words(
    "The line was too slow",
    "More came than this connection could take.",
    "Nothing: it resumes where it was. Follow less if it happens often.",
  ),
  idle_timeout: words("The line was silent", "No heartbeat came in time.", "Nothing: it connects again."),
  overloaded: words("The server is busy", "It takes no more work for the moment.", WAIT),
  unavailable: words(
    "The server cannot be reached",
    "It is stopped, something on the way is down, or one of its stores is.",
    WAIT,
  ),
  shutting_down: words("The server is stopping", "It restarts, or somebody stopped it.", WAIT),
  internal: words(
    "Something broke on the server",
    "It is not your fault.",
    "Look for the request in the server's log and report it.",
  ),
};

/** What is said of a code; unknown ones get a plain answer. */
export function errorWords(code: string): ErrorWords {
  return (
    KNOWN[code] ??
    words(
      "It did not work",
      "The message below is all that is known.",
      "Look up the code in the documentation.",
    )
  );
}

/** Whether it is a code that has words. */
export function isKnownError(code: string): boolean {
  return Object.hasOwn(KNOWN, code);
}
