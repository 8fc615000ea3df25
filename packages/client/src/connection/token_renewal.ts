import { KhalaError } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import { backoffMs } from "./backoff.ts";
import type { Token, Tokens } from "./tokens.ts";

export interface RenewalOptions {
  readonly tokens: Tokens;
  readonly environment: Environment;
  readonly log: Log;
  /** Sends a token on the open socket. */
  readonly authenticate: (token: string, settle: (error: KhalaError | undefined) => void) => void;
  /** The new token has another subject, so the socket must be opened again. */
  readonly reconnect: (error: KhalaError) => void;
}

/** Keeps the token of one socket fresh. */
export interface Renewal {
  /** Starts once the socket is open. */
  start(): void;
  /** Renews if due: timers are late after a sleep. */
  check(): void;
  stop(): void;
}

const RETRY = { baseMs: 2_000, capMs: 15_000 };
/** The longest delay that platforms accept. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Renews the token before it expires and sends it to the server; also tokens that other parts renewed. */
export function createTokenRenewal(first: Token, options: RenewalOptions): Renewal {
  const { tokens, environment, log, authenticate, reconnect } = options;
  let held = first;
  let failures = 0;
  let running = false;
  let renewing = false;
  let cancel = () => {};
  let unsubscribe = () => {};

  function plan(wait = tokens.renewInMs()): void {
    cancel();
    if (running && tokens.renewable && Number.isFinite(wait))
      cancel = environment.timer(Math.min(Math.max(0, wait), MAX_TIMER_MS), renew);
  }

  function renew(): void {
    // The timer was capped, or the clock went backwards.
    if (failures === 0 && tokens.renewInMs() > 0) return plan();
    if (renewing) return;
    renewing = true;
    tokens
      .renew()
      .then(
        // The source returned the same token again.
        (token) =>
          token.text === held.text
            ? failed(
                new KhalaError(
                  "unavailable",
                  "The client's `token` returned the expired token again. Return a new one.",
                ),
              )
            : undefined,
        failed,
      )
      .finally(() => {
        renewing = false;
      });
  }

  function failed(error: KhalaError): void {
    if (!running) return;
    failures++;
    log({ level: "warn", event: "token_not_renewed", message: error.message, error });
    plan(backoffMs(failures, environment.random, RETRY, 1_000));
  }

  function hand(token: Token): void {
    if (!running || token.text === held.text) return;
    if (token.subject !== held.subject || token.org !== held.org)
      return reconnect(
        new KhalaError("subject_mismatch", "The new token has another subject. The client reconnects."),
      );
    authenticate(token.text, (error) => {
      if (!running) return;
      if (error) return failed(error);
      held = token;
      failures = 0;
      plan();
    });
  }

  return {
    start() {
      running = true;
      unsubscribe = tokens.onToken(hand);
      plan();
      // It may have been replaced while the socket was being opened.
      if (tokens.current) hand(tokens.current);
    },
    check() {
      if (running && tokens.renewable && failures === 0 && tokens.renewInMs() <= 0) renew();
    },
    stop() {
      running = false;
      cancel();
      unsubscribe();
    },
  };
}
