/** What a model answers to one request. */
export interface ModelAnswer {
  /** Text, in the pieces in which it is streamed. */
  readonly text?: readonly string[];
  /** A tool call after the text; the client is expected to come back with its result. */
  readonly call?: { readonly id: string; readonly name: string; readonly input: object };
  readonly usage?: { readonly input: number; readonly output: number };
  /** What goes wrong after the text. */
  readonly failure?: "refusal" | "connection_reset" | "early_end" | "overloaded";
}

/** What the provider answers instead of a stream. */
export interface ModelRefusal {
  readonly error: "rate_limit" | "context_length" | "content_policy";
  readonly retryAfterMs?: number;
}

/** One event of a stream of server-sent events. */
export interface WireEvent {
  readonly event?: string;
  readonly data: object | string;
}

/** The wire format of a provider. */
export interface ProviderWire {
  /** Status, headers and body of an answer that is no stream. */
  refusal(refusal: ModelRefusal): { readonly status: number; readonly body: object };
  /** The events of a stream up to its end, or to where it fails. */
  events(answer: ModelAnswer, model: string): Iterable<WireEvent>;
}

/** The number of tokens that an answer costs unless it says so. */
export const USAGE = { input: 11, output: 7 };
