import { COMMAND, environment, serverUrl } from "../environment.ts";
import { Failure } from "../failure.ts";
import { callServer, ServerRefusal } from "./call_server.ts";

/** Subject and org of the demo and of development tokens. */
export const DEV = { sub: "dev", org: "demo" } as const;

/** A token, as `POST /api/sync/token` answers. */
export interface Minted {
  readonly token: string;
  /** RFC 3339. */
  readonly expires_at: string;
  readonly kid: string;
}

export interface TokenRequest {
  readonly sub: string;
  readonly org: string;
  readonly scopes: readonly string[];
  /** Seconds; the server's default when absent. */
  readonly ttl?: number;
}

/** Requests a token: a development server mints for every program on its machine, others need the issuer key. */
export async function requestToken(url: string, { sub, org, scopes, ttl }: TokenRequest): Promise<Minted> {
  try {
    return await callServer<Minted>(url, "/api/sync/token", {
      body: { sub, org_id: org, scopes, ...(ttl !== undefined && { ttl_s: ttl }) },
      token: environment.KHALA_AUTH_ISSUER_KEY || undefined,
    });
  } catch (error) {
    if (!(error instanceof ServerRefusal) || !["missing_authorization", "invalid_token"].includes(error.code))
      throw error;
    const advice = "Set KHALA_AUTH_ISSUER_KEY, or pass a token with --token or KHALA_TOKEN.";
    throw new Failure(`${url} does not mint a token for this caller. ${advice}`, undefined, { cause: error });
  }
}

/** The source of a command's tokens. */
export interface TokenSource {
  /** Whether `get` returns another token when this one has expired. */
  readonly renewable: boolean;
  /** A valid token. */
  get(): Promise<string>;
  /** When the last one should be replaced, in milliseconds from now. */
  renewAfterMs(now: number): number;
}

/** The token of the command line or the environment, or new ones from the server. */
export function tokenSource(url: string, given: string | undefined, scopes: readonly string[]): TokenSource {
  const fixed = given ?? environment.KHALA_TOKEN;
  if (fixed) {
    return { renewable: false, get: async () => fixed, renewAfterMs: () => Number.POSITIVE_INFINITY };
  }
  let expiresAt = 0;
  return {
    renewable: true,
    async get() {
      const { token, expires_at } = await requestToken(url, { ...DEV, scopes });
      expiresAt = Date.parse(expires_at);
      return token;
    },
    renewAfterMs: (now) => Math.max(1_000, (expiresAt - now) * 0.7),
  };
}

/** Options of the commands that call a server. */
export interface ServerOptions {
  readonly url?: string;
  readonly token?: string;
  readonly json?: boolean;
}

/** Calls the server that the options name, with a token for these scopes. */
export async function callWithScope<T>(
  options: ServerOptions,
  scopes: string | readonly string[],
  path: string,
  body?: unknown,
): Promise<T> {
  const url = serverUrl(options.url);
  const token = await tokenSource(url, options.token, [scopes].flat()).get();
  return callServer<T>(url, path, { token, ...(body !== undefined && { body }) });
}

/** The failure of a token that has expired and cannot be renewed. */
export function tokenExpired(): Failure {
  return new Failure(`The token has expired. Get a new one with \`${COMMAND} token\`.`);
}
