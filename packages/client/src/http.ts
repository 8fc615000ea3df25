import { KhalaError } from "@khala/contracts";
import { errorOf } from "./connection/phoenix_socket.ts";
import type { Tokens } from "./connection/tokens.ts";
import type { Environment } from "./environment.ts";

/** Requests to the server's HTTP routes, with the token. */
export interface Http {
  /** Throws the server's KhalaError; `unavailable` when it cannot be reached in time. 304 is no error. */
  request(method: "GET" | "POST" | "DELETE", path: string, options?: RequestOptions): Promise<Answer>;
}

export interface RequestOptions {
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  /** Sent as JSON; bytes are sent as they are. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** The timeout of the answer; 15 s unless given. */
  readonly timeoutMs?: number;
  /** The answer is bytes: its body is a Blob. */
  readonly binary?: true;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** Undefined when there is none. */
  readonly body: unknown;
}

/** The timeout of a request. */
const TIMEOUT_MS = 15_000;

export interface FetchOptions {
  readonly url: string;
  readonly environment: Environment;
  readonly tokens: Tokens;
}

/** HTTP over the environment's `fetch`, and a check why a WebSocket handshake failed. */
export interface FetchHttp extends Http {
  /** The error of the token or the server; undefined when both work. */
  diagnose(token: string): Promise<KhalaError | undefined>;
}

/** Sends requests with the client's token. A refused token is renewed once. */
export function fetchHttp({ url, environment, tokens }: FetchOptions): FetchHttp {
  const base = url.replace(/\/+$/, "");

  async function send(method: string, path: string, token: string, options: RequestOptions): Promise<Answer> {
    const late = new AbortController();
    const giveUp = () => late.abort();
    const stop = environment.timer(options.timeoutMs ?? TIMEOUT_MS, giveUp);
    options.signal?.addEventListener("abort", giveUp, { once: true });
    if (options.signal?.aborted) giveUp();
    const sentAt = environment.now();
    try {
      const response = await environment.fetch(base + path + queryOf(options.query), {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          ...(options.body !== undefined && { "content-type": "application/json" }),
          ...options.headers,
        },
        ...(options.body !== undefined && {
          body: options.body instanceof Blob ? options.body : JSON.stringify(options.body),
        }),
        signal: late.signal,
      });
      learnTime(response.headers.get("date"), sentAt);
      const isBinary = options.binary && response.ok;
      const body = isBinary ? await response.blob() : bodyOf(await response.text());
      return { status: response.status, headers: response.headers, body };
    } catch (cause) {
      throw new KhalaError("unavailable", unreachable(options, late.signal), {}, { cause });
    } finally {
      stop();
      options.signal?.removeEventListener("abort", giveUp);
    }
  }

  function unreachable({ signal, timeoutMs = TIMEOUT_MS }: RequestOptions, late: AbortSignal): string {
    if (signal?.aborted) return "The request was aborted.";
    if (late.aborted) return `The server did not answer within ${timeoutMs / 1_000} s.`;
    const { origin } = environment;
    if (origin === undefined || originOf(base, origin) === origin)
      return `The server at ${base} cannot be reached.`;
    // A browser does not report which of the two it is.
    return `The server at ${base} cannot be reached, or does not accept pages of ${origin}. Add that origin to the server's KHALA_ORIGINS.`;
  }

  /** Other origins may not read the Date header; then the clock skew stays unknown. */
  function learnTime(date: string | null, sentAt: number): void {
    const at = date === null ? Number.NaN : Date.parse(date);
    // The header has whole seconds: on average half a second is cut off.
    if (Number.isFinite(at)) tokens.serverTime(at + 500, sentAt);
  }

  return {
    async request(method, path, options = {}) {
      const token = await tokens.get();
      let answer = await send(method, path, token.text, options);
      if (answer.status === 401 && tokens.renewable) {
        const fresh = await tokens.renew(token.text);
        answer = await send(method, path, fresh.text, options);
      }
      if (answer.status >= 400) throw refusal(answer);
      if (answer.body === FOREIGN) throw foreign(method, path, answer);
      return answer;
    },
    async diagnose(token) {
      const answer = await send("GET", PROBE, token, {});
      return answer.status < 400 || answer.status === 404 ? undefined : refusal(answer);
    },
  };
}

/** A document that does not exist: a valid token gets 404. */
const PROBE = "/sync/v1/doc/khala:probe";

function queryOf(query: RequestOptions["query"] = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) params.set(name, String(value));
  const text = params.toString();
  return text && `?${text}`;
}

function originOf(url: string, base: string): string | undefined {
  try {
    return new URL(url, base).origin;
  } catch {
    return undefined;
  }
}

/** The body of an answer that is no JSON, such as a page of a proxy. */
const FOREIGN = Symbol("foreign");

function bodyOf(text: string): unknown {
  if (text === "") return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return FOREIGN;
  }
}

/** Development servers answer paths that they do not know with the app's page, and with 200. */
function foreign(method: string, path: string, { status, headers }: Answer): KhalaError {
  const type = headers.get("content-type")?.split(";")[0] ?? "no type";
  return new KhalaError(
    "invalid_request",
    `${method} ${path} was answered with HTTP ${status} and ${type}, not by Khala. Check the client's \`url\`, and that a proxy passes this path on.`,
  );
}

function refusal({ status, body }: Answer): KhalaError {
  if (typeof body === "object" && body !== null && "error" in body) return errorOf(body);
  const code =
    status === 401
      ? "invalid_token"
      : status === 404
        ? "not_found"
        : status >= 500
          ? "unavailable"
          : "invalid_request";
  return new KhalaError(
    code,
    `The answer (HTTP ${status}) is not from a Khala server. Check the client's \`url\`.`,
  );
}
