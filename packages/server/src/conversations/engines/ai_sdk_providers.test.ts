import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import type { ModelAnswer, ModelRefusal } from "@khala/test-support/providers/answer";
import {
  type ModelProvider,
  type Respond,
  startModelProvider,
} from "@khala/test-support/providers/model_provider";
import { jsonSchema, type LanguageModel, tool } from "ai";
import { describe, expect, test } from "vitest";
import { type AiSdkOptions, aiSdk } from "./ai_sdk.ts";
import { play, textOf, turnOf } from "./test_support.ts";

const PROVIDERS: [name: string, model: (provider: ModelProvider) => LanguageModel][] = [
  ["openai", ({ url }) => createOpenAI({ baseURL: url, apiKey: "sk-secret" })("gpt-5")],
  ["openai.chat", ({ url }) => createOpenAI({ baseURL: url, apiKey: "sk-secret" }).chat("gpt-5")],
  ["anthropic", ({ url }) => createAnthropic({ baseURL: url, apiKey: "sk-secret" })("claude-sonnet-4-5")],
];

const weather = tool({
  description: "The weather in a city.",
  inputSchema: jsonSchema<{ city: string }>({
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  }),
  execute: ({ city }) => ({ city, celsius: 4 }),
});

describe.each(PROVIDERS)("aiSdk with the provider %s", (_, model) => {
  /** Plays a turn with a provider that answers so. */
  async function answered(respond: Respond, options: AiSdkOptions & { params?: never } = {}) {
    await using provider = await startModelProvider(respond);
    const engine = aiSdk(model(provider), { settings: { maxRetries: 0 }, ...options });
    return { ...(await play(engine, turnOf("Weather in Oslo?"))), requests: provider.requests };
  }

  test("streams text as it arrives, and the usage at the end", async () => {
    const { events, error } = await answered(() => ({
      text: ["Rain", " and", " 4 °C."],
      usage: { input: 120, output: 6 },
    }));
    expect(error).toBeUndefined();
    expect(events).toEqual([
      { text_delta: { text: "Rain" } },
      { text_delta: { text: " and" } },
      { text_delta: { text: " 4 °C." } },
      { run_finished: { reason: "stop", usage: { input_tokens: 120, output_tokens: 6 } } },
    ]);
  });

  test("runs a tool, and continues with its result", async () => {
    const { events, error, requests } = await answered(
      (_, count): ModelAnswer =>
        count === 1
          ? { text: ["I look."], call: { id: "call_1", name: "weather", input: { city: "Oslo" } } }
          : { text: ["4 °C."] },
      { tools: { weather } },
    );
    expect(error).toBeUndefined();
    const call = { tool_call_id: "call_1", tool: "weather" };
    expect(events).toContainEqual({ tool_call: { ...call, input: { city: "Oslo" } } });
    expect(events).toContainEqual({ tool_result: { ...call, output: { city: "Oslo", celsius: 4 } } });
    expect(textOf(events)).toBe("I look.4 °C.");
    expect(requests).toHaveLength(2);
    expect(JSON.stringify(requests[1]!.body)).toContain("celsius");
  });

  test("retries a 429 when the provider says so, and then answers", async () => {
    const { events, requests } = await answered(
      (_, count) => (count === 1 ? { error: "rate_limit", retryAfterMs: 1 } : { text: ["Rain."] }),
      { settings: { maxRetries: 1 } },
    );
    expect(textOf(events)).toBe("Rain.");
    expect(requests).toHaveLength(2);
  });

  const failures: [what: string, answer: ModelAnswer | ModelRefusal, code: string][] = [
    ["a 429 with retry-after", { error: "rate_limit", retryAfterMs: 1 }, "rate_limited"],
    ["an overload in the middle", { text: ["Rai"], failure: "overloaded" }, "rate_limited"],
    ["a conversation that is too long", { error: "context_length" }, "context_length"],
    ["a request that is against its policy", { error: "content_policy" }, "refused"],
    ["a model that refuses", { text: ["I can't help."], failure: "refusal" }, "refused"],
    ["a connection that is dropped", { text: ["Rai"], failure: "connection_reset" }, "network"],
    ["an answer that ends in the middle", { text: ["Rai"], failure: "early_end" }, "network"],
  ];
  test.each(failures)("%s: the run fails with the right code", async (_, answer, code) => {
    const { events, error } = await answered(() => answer);
    expect(error).toMatchObject({ name: "PublicError", code });
    expect(error?.message).toMatch(/^[A-Z].*\.$/);
    expect(error?.message).not.toMatch(/sk-|127\.0|org-1|gpt|claude/);
    if (!("error" in answer)) expect(textOf(events)).toBe(answer.text!.join(""));
    expect(events.filter(({ run_finished }) => run_finished)).toEqual([]);
  });

  test("fails with rate_limited when every attempt gets a 429", async () => {
    const { error, requests } = await answered(() => ({ error: "rate_limit", retryAfterMs: 1 }), {
      settings: { maxRetries: 2 },
    });
    expect(error).toMatchObject({ code: "rate_limited" });
    expect(requests).toHaveLength(3);
  });

  test("reports a network error when nothing listens at the address", async () => {
    const provider = await startModelProvider(() => ({}));
    await provider[Symbol.asyncDispose]();
    const { error } = await play(
      aiSdk(model(provider), { settings: { maxRetries: 0 } }),
      turnOf("Weather in Oslo?"),
    );
    expect(error).toMatchObject({ name: "PublicError", code: "network" });
  });
});
