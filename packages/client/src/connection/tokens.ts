import { KhalaError } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import { errorCode } from "./close_reason.ts";

/** A token, or a function that gets one. */
export type TokenSource = string | (() => string | Promise<string>);

/** A token and its claims. Only the server verifies it. */
export interface Token {
  readonly text: string;
  /** Milliseconds since 1970, by the server's clock. */
  readonly expiresAt?: number;
  readonly issuedAt?: number;
  readonly subject: string;
  readonly org: string;
}

/** The timeout of the app's token function. */
const SOURCE_MS = 15_000;
/** A token is renewed this long before it expires, or in the last fifth of its lifetime if that is longer. */
const LEAD_MS = 30_000;
/** Minimum time between two renewals, whatever the clocks say. */
const MIN_RENEWAL_MS = 1_000;
/** A token that lasts this long is used while another is asked for. */
const STILL_GOOD_MS = 5_000;

/** The current token, and when to renew it. */
export class Tokens {
  readonly #source: TokenSource;
  readonly #environment: Environment;
  /** The clock skew: server minus client, once known. */
  #ahead: number | undefined;
  #token: Token | undefined;
  #receivedAt = 0;
  #askedAt = 0;
  #pending: Promise<Token> | undefined;
  #failure: { readonly at: number; readonly error: unknown } | undefined;
  readonly #listeners = new Set<(token: Token) => void>();

  constructor(source: TokenSource, environment: Environment) {
    this.#source = source;
    this.#environment = environment;
  }

  /** Calls the listener with each new token. */
  onToken(listener: (token: Token) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Whether the token can be renewed. */
  get renewable(): boolean {
    return typeof this.#source === "function";
  }

  /** The current token, even if expired. */
  get current(): Token | undefined {
    return this.#token;
  }

  /** A valid token. One that is about to expire is renewed in the background, and used as long as it lasts. */
  async get(): Promise<Token> {
    const token = this.#token;
    if (!token) return this.renew();
    if (!this.renewable || this.renewInMs() > 0) return token;
    const renewed = this.#renewAgain();
    // Its failure reaches the callers that need its token.
    renewed.catch(() => {});
    if (this.#leftOf(token) > STILL_GOOD_MS) return token;
    return renewed.catch((error: unknown) => {
      if (this.#leftOf(token) > 0) return token;
      throw error;
    });
  }

  /** Requests that come while the source fails do not all ask it. */
  #renewAgain(): Promise<Token> {
    const wasJustTried = this.#failure && this.#environment.now() - this.#failure.at < MIN_RENEWAL_MS;
    if (this.#failure && wasJustTried && !this.#pending) return Promise.reject(this.#failure.error);
    return this.renew();
  }

  /** Renews the token, unless the refused one was already replaced. */
  renew(refused?: string): Promise<Token> {
    if (refused !== undefined && this.#token && this.#token.text !== refused)
      return Promise.resolve(this.#token);
    if (this.#pending) return this.#pending;
    this.#failure = undefined;
    this.#pending = this.#ask()
      .catch((error: unknown) => {
        this.#failure = { at: this.#environment.now(), error };
        throw error;
      })
      .finally(() => {
        this.#pending = undefined;
      });
    return this.#pending;
  }

  /** Makes the next `get` ask for a new one. */
  discard(): void {
    if (this.renewable) this.#token = undefined;
  }

  /** Measures the clock skew from a response to a request of `sentAt`. */
  serverTime(serverNow: number, sentAt: number): void {
    this.#ahead = serverNow - (sentAt + this.#environment.now()) / 2;
  }

  /** The server's time, corrected by the known skew. */
  serverNow(): number {
    return this.#environment.now() + (this.#ahead ?? 0);
  }

  /** Whether the current token has expired. */
  get expired(): boolean {
    return this.#token !== undefined && this.#leftOf(this.#token) <= 0;
  }

  #leftOf(token: Token): number {
    return token.expiresAt === undefined ? Number.POSITIVE_INFINITY : this.#leftMs(token, token.expiresAt);
  }

  /** Milliseconds until the token should be renewed; infinite without an expiry. */
  renewInMs(): number {
    const { expiresAt } = this.#token ?? {};
    if (!this.#token || expiresAt === undefined) return Number.POSITIVE_INFINITY;
    const left = this.#leftMs(this.#token, expiresAt);
    const life = this.#token.issuedAt === undefined ? left : expiresAt - this.#token.issuedAt;
    const lead = Math.min(Math.max(LEAD_MS, life / 5), life / 2);
    const sinceAsked = Math.max(0, this.#environment.now() - this.#askedAt);
    return Math.max(left - lead, MIN_RENEWAL_MS - sinceAsked);
  }

  /**
   * The remaining lifetime. While the skew is unknown the clock may be hours off: a token that seems expired
   * or not yet valid when received counts as fresh.
   */
  #leftMs(token: Token, expiresAt: number): number {
    const now = this.#environment.now();
    if (this.#ahead !== undefined || token.issuedAt === undefined) return expiresAt - this.serverNow();
    const life = expiresAt - token.issuedAt;
    const whenReceived = expiresAt - this.#receivedAt;
    const plausible = whenReceived > 0 && whenReceived <= life + LEAD_MS;
    return plausible ? expiresAt - now : life - (now - this.#receivedAt);
  }

  async #ask(): Promise<Token> {
    const text = typeof this.#source === "function" ? await this.#call(this.#source) : this.#source;
    const token = readToken(text);
    this.#askedAt = this.#environment.now();
    const changed = token.text !== this.#token?.text;
    this.#token = token;
    if (changed) {
      this.#receivedAt = this.#environment.now();
      for (const listener of [...this.#listeners]) listener(token);
    }
    return token;
  }

  #call(source: () => string | Promise<string>): Promise<string> {
    return new Promise<string>((resolve, reject) => {
      const stop = this.#environment.timer(SOURCE_MS, () =>
        reject(
          new KhalaError(
            "unavailable",
            `The client's \`token\` returned nothing within ${SOURCE_MS / 1_000} s. Check that function.`,
          ),
        ),
      );
      Promise.resolve()
        .then(source)
        .then(resolve, (cause: unknown) => reject(asTokenError(cause, this.#environment.origin)))
        .finally(stop);
    });
  }
}

/** Keeps an error that has one of our codes: it may come from our route or another copy of the package. */
function asTokenError(cause: unknown, origin: string | undefined): KhalaError {
  if (cause instanceof KhalaError) return cause;
  const why = cause instanceof Error ? cause.message : String(cause);
  const code = errorCode((cause as { code?: unknown } | null | undefined)?.code);
  if (code) return new KhalaError(code, why, {}, { cause });
  const message = `The client's \`token\` failed: ${why}`;
  // A browser does not report to a page why its request failed.
  const hint =
    origin !== undefined && cause instanceof TypeError ? `${message}. ${crossOrigin(origin)}` : message;
  return new KhalaError("unavailable", hint, {}, { cause });
}

function crossOrigin(origin: string): string {
  return `If it calls another origin, that origin must accept pages of ${origin}. A Khala server mints tokens only for pages of its own origin, whatever its KHALA_ORIGINS. Get tokens from your backend, or proxy /api of the page's server to Khala.`;
}

interface Claims {
  readonly exp?: unknown;
  readonly iat?: unknown;
  readonly sub?: unknown;
  readonly oa_org_id?: unknown;
}

/** Reads a token's claims. Skips unreadable ones; the server decides. */
function readToken(text: string): Token {
  const { exp, iat, sub, oa_org_id } = claimsOf(text);
  return {
    text,
    ...(typeof exp === "number" && { expiresAt: exp * 1_000 }),
    ...(typeof iat === "number" && { issuedAt: iat * 1_000 }),
    subject: typeof sub === "string" ? sub : "",
    org: typeof oa_org_id === "string" ? oa_org_id : "",
  };
}

function claimsOf(token: string): Claims {
  try {
    const part = token.split(".")[1] ?? "";
    const binary = atob(part.replaceAll("-", "+").replaceAll("_", "/"));
    // Decodes UTF-8 by percent encoding: not every platform has a TextDecoder.
    const escaped = binary.replace(
      /[\s\S]/g,
      (byte) => `%${byte.charCodeAt(0).toString(16).padStart(2, "0")}`,
    );
    const claims: unknown = JSON.parse(decodeURIComponent(escaped));
    return typeof claims === "object" && claims !== null ? claims : {};
  } catch {
    // Not a JWT with JSON claims.
    return {};
  }
}
