/** A model's answer to one request. */
export interface ModelAnswer {
  /** The text, in streamed pieces. */
  readonly text?: readonly string[];
  /** A tool call after the text; the client is expected to send its result. */
  readonly call?: { readonly id: string; readonly name: string; readonly input: object };
  readonly usage?: { readonly input: number; readonly output: number };
  /** The failure after the text. */
  readonly failure?: "refusal" | "connection_reset" | "early_end" | "overloaded";
}

/** The provider's response instead of a stream. */
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
  /** Status, headers and body of an answer without a stream. */
  refusal(refusal: ModelRefusal): { readonly status: number; readonly body: object };
  /** The events of a stream up to its end, or to its failure. */
  events(answer: ModelAnswer, model: string): Iterable<WireEvent>;
}

/** The default token usage of an answer. */
export const USAGE = { input: 11, output: 7 };
