import { type ModelAnswer, type ProviderWire, USAGE, type WireEvent } from "./answer.ts";
import { openAiResponses } from "./openai_responses.ts";

/** OpenAI's Chat Completions API, which most other providers and local servers offer as well. */
export const openAiChat: ProviderWire = {
  refusal: openAiResponses.refusal,
  *events({ text = [], call, usage = USAGE, failure }: ModelAnswer, model) {
    const head = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1_790_000_000, model };
    const chunk = (delta: object, finish_reason: string | null = null): WireEvent => ({
      data: { ...head, choices: [{ index: 0, delta, finish_reason }] },
    });
    yield chunk({ role: "assistant", content: "" });
    for (const piece of text) yield chunk(failure === "refusal" ? { refusal: piece } : { content: piece });
    if (failure === "connection_reset" || failure === "early_end") return;
    if (failure === "overloaded") {
      const message = "The engine is currently overloaded.";
      yield { data: { error: { message, type: "server_error", code: "rate_limit_exceeded", param: null } } };
      return;
    }
    if (call) {
      const { id, name } = call;
      const json = JSON.stringify(call.input);
      yield chunk({ tool_calls: [{ index: 0, id, type: "function", function: { name, arguments: "" } }] });
      for (const piece of [json.slice(0, 5), json.slice(5)])
        yield chunk({ tool_calls: [{ index: 0, function: { arguments: piece } }] });
    }
    yield chunk({}, call ? "tool_calls" : "stop");
    const tokens = { prompt_tokens: usage.input, completion_tokens: usage.output };
    const total_tokens = usage.input + usage.output;
    yield { data: { ...head, choices: [], usage: { ...tokens, total_tokens } } };
    yield { data: "[DONE]" };
  },
};
