import { anthropic } from "@ai-sdk/anthropic";
import { openai } from "@ai-sdk/openai";

const PROVIDERS = { openai, anthropic };

/** The model that MODEL names, such as `openai/gpt-5-mini` or `anthropic/claude-sonnet-4-5`. Its key is in the environment too. */
export function modelOf(name = process.env.MODEL ?? "openai/gpt-5-mini") {
  const [provider = "", model] = name.split(/\/(.*)/s);
  if (!Object.hasOwn(PROVIDERS, provider) || !model)
    throw new Error(`MODEL is "${name}". Use one of: ${Object.keys(PROVIDERS).join("/…, ")}/….`);
  return PROVIDERS[provider as keyof typeof PROVIDERS](model);
}
