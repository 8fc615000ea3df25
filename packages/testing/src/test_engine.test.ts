import { defineEngine, PublicError, scripted } from "@khala/server/engines";
import { expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { testEngine } from "./test_engine.ts";

const parrot = defineEngine({
  params: z.object({ tone: z.enum(["calm", "loud"]).default("calm") }),
  async *run({ message, params, history, post, publish }) {
    expectTypeOf(params.tone).toEqualTypeOf<"calm" | "loud">();
    if (message === "fail") throw new PublicError("No more seeds.");
    await post({ status: { text: "Thinking" } });
    await publish?.([{ type: "Said", payload: { message } }]);
    yield { text_delta: { text: params.tone === "loud" ? message.toUpperCase() : message } };
    yield { text_delta: { text: ` (${history.length} before)` } };
    yield { run_finished: { reason: "stop", usage: { output_tokens: 2 } } };
  },
});

test("say returns the answer, and the conversation continues", async () => {
  const engine = testEngine(parrot);
  expect(await engine.say("hi")).toMatchObject({
    text: "hi (0 before)",
    reason: "stop",
    usage: { output_tokens: 2 },
    published: [{ type: "Said", payload: { message: "hi" } }],
  });
  const { text, events } = await engine.say("again", { params: { tone: "loud" } });
  expect(text).toBe("AGAIN (2 before)");
  expect(events[0]).toEqual({ status: { text: "Thinking" } });
  expect(engine.history.map(({ role }) => role)).toEqual(["user", "assistant", "user", "assistant"]);
});

test("throws the engine's errors, and names wrong params", async () => {
  await expect(testEngine(parrot).say("fail")).rejects.toThrow("No more seeds.");
  const params: object = { tone: "shrill" };
  await expect(testEngine<object>(parrot).say("hi", { params })).rejects.toThrow("params.tone");
});

test("an event that a server would refuse fails the test", async () => {
  const wrong = () => ({
    async *run() {
      yield JSON.parse('{"run_started":{}}');
    },
  });
  await expect(testEngine(wrong).say("hi")).rejects.toThrow("only the server may send");
});

test("tool calls are parts of the answer's messages", async () => {
  const { messages, text } = await testEngine(scripted()).say("How is the weather in Oslo?");
  expect(text).toContain("You said");
  const tools = messages.flatMap(({ parts = [] }) => parts.flatMap(({ tool }) => (tool ? [tool] : [])));
  expect(tools).toMatchObject([{ tool: "weather", output: { city: "Oslo" } }]);
});

test("params have the type of the engine's schema", () => {
  const engine = testEngine(parrot);
  expectTypeOf<Parameters<typeof engine.say>[1]>()
    .exclude<undefined>()
    .toHaveProperty("params")
    .toEqualTypeOf<{ tone?: "calm" | "loud" | undefined } | undefined>();
});
