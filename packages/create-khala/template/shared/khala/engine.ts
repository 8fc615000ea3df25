import { aiSdk, defineEngine, type EngineFactory } from "@khala/server/engines";

/** Answers without a model, word by word. */
const scripted = defineEngine({
  async *run({ message, history }) {
    yield { status: { text: "Thinking" } };
    const answer = `You said "${message}". Set MODEL to get answers from a model. Messages before: ${history.length}.`;
    for (const word of answer.split(/(?<= )/)) yield { text_delta: { text: word } };
  },
});

// Such as MODEL=openai/gpt-5 with AI_GATEWAY_API_KEY. Any provider of the AI SDK works: aiSdk(openai("gpt-5")).
const { MODEL } = process.env;

/** What answers in conversations. */
export const engine: EngineFactory = MODEL ? aiSdk(MODEL, { system: "Answer briefly." }) : scripted;
