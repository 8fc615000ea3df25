import { COMMAND } from "../environment.ts";
import { EXIT, Failure } from "../failure.ts";

/** A server's refusal, with the code of its error table. */
export class ServerRefusal extends Failure {
  readonly code: string;

  constructor(code: string, message: string) {
    super(`${message} (${code})`);
    this.code = code;
  }
}

export interface Call {
  readonly method?: "GET" | "POST" | "DELETE";
  readonly body?: unknown;
  readonly token?: string | undefined;
  readonly signal?: AbortSignal;
}

const TIMEOUT_MS = 10_000;

/** Calls a server over HTTP; throws its error as ServerRefusal. */
export async function callServer<T>(url: string, path: string, call: Call = {}): Promise<T> {
  const { method = call.body === undefined ? "GET" : "POST", body, token } = call;
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let response: Response;
  let text: string;
  try {
    response = await fetch(new URL(path, url), {
      method,
      signal: call.signal ? AbortSignal.any([timeout, call.signal]) : timeout,
      headers: {
        ...(body !== undefined && { "Content-Type": "application/json" }),
        ...(token !== undefined && { Authorization: `Bearer ${token}` }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    text = await response.text();
  } catch (cause) {
    const advice = `Start one with \`${COMMAND} dev\`, or name another with --url.`;
    throw new Failure(`No server answers at ${url}. ${advice}`, EXIT.unreachable, { cause });
  }
  const answer = parse(text);
  if (response.ok && answer !== undefined) return answer as T;
  const error = (answer as { error?: { code?: unknown; message?: unknown } } | undefined)?.error;
  if (typeof error?.code === "string") throw new ServerRefusal(error.code, String(error.message));
  throw new Failure(`${url} answered ${response.status}, but is not a Khala server. Check --url.`);
}

function parse(text: string): unknown {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return undefined;
  }
}
