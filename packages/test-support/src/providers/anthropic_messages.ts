import { type ModelAnswer, type ProviderWire, USAGE, type WireEvent } from "./answer.ts";

const ERRORS = {
  rate_limit: {
    status: 429,
    type: "rate_limit_error",
    message: "This request would exceed your organization's rate limit of 50 requests per minute.",
  },
  context_length: {
    status: 400,
    type: "invalid_request_error",
    message: "prompt is too long: 201245 tokens > 200000 maximum",
  },
  content_policy: {
    status: 400,
    type: "invalid_request_error",
    message: "Output blocked by content filtering policy",
  },
} as const;

/** Anthropic's Messages API, which `anthropic(model)` of the AI SDK uses. */
export const anthropicMessages: ProviderWire = {
  refusal({ error }) {
    const { status, ...rest } = ERRORS[error];
    return { status, body: { type: "error", error: rest, request_id: "req_1" } };
  },
  *events(answer, model) {
    for (const data of steps(answer, model)) yield { event: data.type, data } satisfies WireEvent;
  },
};

type Step = { readonly type: string } & Record<string, unknown>;

function* steps({ text = [], call, usage = USAGE, failure }: ModelAnswer, model: string): Iterable<Step> {
  const message = { id: "msg_1", type: "message", role: "assistant", model, content: [], stop_reason: null };
  const tokens = { input_tokens: usage.input, output_tokens: 1 };
  yield { type: "message_start", message: { ...message, stop_sequence: null, usage: tokens } };
  yield { type: "ping" };
  let index = 0;
  if (text.length > 0) {
    yield { type: "content_block_start", index, content_block: { type: "text", text: "" } };
    for (const piece of text)
      yield { type: "content_block_delta", index, delta: { type: "text_delta", text: piece } };
    if (failure === "connection_reset" || failure === "early_end") return;
    if (failure === "overloaded") {
      yield { type: "error", error: { type: "overloaded_error", message: "Overloaded" } };
      return;
    }
    yield { type: "content_block_stop", index };
    index++;
  }
  if (call) {
    const { id, name } = call;
    const json = JSON.stringify(call.input);
    yield { type: "content_block_start", index, content_block: { type: "tool_use", id, name, input: {} } };
    for (const partial_json of [json.slice(0, 5), json.slice(5)])
      yield { type: "content_block_delta", index, delta: { type: "input_json_delta", partial_json } };
    yield { type: "content_block_stop", index };
  }
  const reason = failure === "refusal" ? "refusal" : call ? "tool_use" : "end_turn";
  yield {
    type: "message_delta",
    delta: { stop_reason: reason, stop_sequence: null },
    usage: { output_tokens: usage.output },
  };
  yield { type: "message_stop" };
}
