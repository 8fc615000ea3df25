/** Requests to the server's HTTP routes, with the token. */
export interface Http {
  /** Throws the server's KhalaError; `unavailable` when it cannot be reached in time. 304 is no error. */
  request(method: "GET" | "POST" | "DELETE", path: string, options?: RequestOptions): Promise<Answer>;
}

export interface RequestOptions {
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** Undefined when there is none. */
  readonly body: unknown;
}
