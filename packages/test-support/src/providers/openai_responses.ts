import { type ModelAnswer, type ProviderWire, USAGE, type WireEvent } from "./answer.ts";

const ERRORS = {
  rate_limit: {
    status: 429,
    type: "requests",
    code: "rate_limit_exceeded",
    message: "Rate limit reached for gpt-5 in organization org-1 on requests per min (RPM): Limit 3, Used 3.",
  },
  context_length: {
    status: 400,
    type: "invalid_request_error",
    code: "context_length_exceeded",
    message: "Your input exceeds the context window of this model. Please adjust your input and try again.",
  },
  content_policy: {
    status: 400,
    type: "invalid_request_error",
    code: "content_policy_violation",
    message: "Your request was rejected as a result of our safety system.",
  },
} as const;

/** OpenAI's Responses API, which `openai(model)` of the AI SDK uses. */
export const openAiResponses: ProviderWire = {
  refusal({ error }) {
    const { status, ...rest } = ERRORS[error];
    return { status, body: { error: { ...rest, param: null } } };
  },
  *events(answer, model) {
    let n = 0;
    const wire = (type: string, fields: object): WireEvent => ({
      event: type,
      data: { type, sequence_number: n++, ...fields },
    });
    for (const [type, fields] of steps(answer, model)) yield wire(type, fields);
  },
};

function* steps(
  { text = [], call, usage = USAGE, failure }: ModelAnswer,
  model: string,
): Iterable<[type: string, fields: object]> {
  const response = { id: "resp_1", object: "response", created_at: 1_790_000_000, model, error: null };
  yield ["response.created", { response: { ...response, status: "in_progress" } }];
  yield ["response.in_progress", { response: { ...response, status: "in_progress" } }];
  if (text.length > 0 || failure === "refusal") {
    const item = { id: "msg_1", type: "message", role: "assistant" };
    const at = { item_id: item.id, output_index: 0, content_index: 0 };
    const kind = failure === "refusal" ? "refusal" : "output_text";
    yield ["response.output_item.added", { output_index: 0, item: { ...item, content: [] } }];
    for (const delta of text) yield [`response.${kind}.delta`, { ...at, delta }];
    if (failure === "connection_reset" || failure === "early_end") return;
    if (failure === "overloaded") {
      const error = { code: "rate_limit_exceeded", message: "The engine is currently overloaded." };
      yield ["response.failed", { response: { ...response, status: "failed", error } }];
      return;
    }
    const whole = text.join("");
    const content = kind === "refusal" ? { type: kind, refusal: whole } : { type: kind, text: whole };
    yield [`response.${kind}.done`, { ...at, ...content, type: `response.${kind}.done` }];
    yield ["response.output_item.done", { output_index: 0, item: { ...item, content: [content] } }];
  }
  if (call) {
    const json = JSON.stringify(call.input);
    const item = { id: `fc_${call.id}`, type: "function_call", call_id: call.id, name: call.name };
    const at = { item_id: item.id, output_index: 1 };
    yield ["response.output_item.added", { output_index: 1, item: { ...item, arguments: "" } }];
    for (const delta of [json.slice(0, 5), json.slice(5)])
      yield ["response.function_call_arguments.delta", { ...at, delta }];
    yield ["response.function_call_arguments.done", { ...at, arguments: json }];
    const done = { ...item, arguments: json, status: "completed" };
    yield ["response.output_item.done", { output_index: 1, item: done }];
  }
  const tokens = { input_tokens: usage.input, output_tokens: usage.output };
  yield ["response.completed", { response: { ...response, status: "completed", usage: tokens } }];
}
