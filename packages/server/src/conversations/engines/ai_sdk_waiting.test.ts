import type { PartJson, ToolDecisionJson } from "@khala/contracts/conversation/v1";
import { jsonSchema, tool } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { beforeEach, describe, expect, test } from "vitest";
import { aiSdk } from "./ai_sdk.ts";
import { play, textOf, turnOf } from "./test_support.ts";

type StreamResult = Awaited<ReturnType<MockLanguageModelV4["doStream"]>>;
type Part = StreamResult["stream"] extends ReadableStream<infer P> ? P : never;

const usage = {
  inputTokens: { total: 3, noCache: 3, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 10, text: 10, reasoning: undefined },
};
const text = (delta: string): Part[] => [
  { type: "text-start", id: "t" },
  { type: "text-delta", id: "t", delta },
  { type: "text-end", id: "t" },
];
const finish = (unified: "stop" | "tool-calls" = "stop"): Part => ({
  type: "finish",
  finishReason: { unified, raw: undefined },
  usage,
});
const answers = (...all: Part[][]) =>
  new MockLanguageModelV4({
    doStream: all.map((parts) => ({ stream: convertArrayToReadableStream(parts) })),
  });

/** A tool that waits for a person, and one that the client executes. */
const executed: string[] = [];
beforeEach(() => {
  executed.length = 0;
});
const pay = tool({
  inputSchema: jsonSchema<{ euros: number }>({ type: "object", properties: { euros: { type: "number" } } }),
  needsApproval: true,
  execute({ euros }) {
    executed.push(`paid ${euros}`);
    return { paid: euros };
  },
});
const locate = tool({
  inputSchema: jsonSchema({ type: "object" }),
  outputSchema: jsonSchema({ type: "object" }),
});
const callOf = (toolCallId: string, toolName: string, input: object): Part => ({
  type: "tool-call",
  toolCallId,
  toolName,
  input: JSON.stringify(input),
});
const promptOf = (model: MockLanguageModelV4) => JSON.stringify(model.doStreamCalls.at(-1)!.prompt);

describe("a tool that waits", () => {
  test("for a person is not executed, and one without execute is left to the client", async () => {
    const model = answers([
      callOf("p", "pay", { euros: 5 }),
      callOf("l", "locate", {}),
      finish("tool-calls"),
    ]);
    const { events, error } = await play(aiSdk(model, { tools: { pay, locate } }), turnOf("Pay"));
    expect(error).toBeUndefined();
    expect(events).toEqual([
      { tool_call: { tool_call_id: "p", tool: "pay", input: { euros: 5 } } },
      { tool_approval_requested: { tool_call_id: "p" } },
      { tool_call: { tool_call_id: "l", tool: "locate", input: {}, waits_for: "output" } },
      { run_finished: expect.objectContaining({ reason: "tool-calls" }) },
    ]);
    expect([executed, model.doStreamCalls.length]).toEqual([[], 1]);
  });

  const resumed = (decision: ToolDecisionJson, more: PartJson[] = []) => ({
    attempt: 0,
    messages: [
      {
        message_id: "m1",
        role: "assistant",
        parts: [
          { text: "At once." },
          { tool: { tool_call_id: "p", tool: "pay", input: { euros: 5 }, waits_for: "approval", decision } },
          ...more,
        ],
      },
    ],
  });

  test("is executed once it is approved, beside the client's output, and the model continues", async () => {
    const model = answers([...text("Paid."), finish()]);
    const located = { tool: { tool_call_id: "l", tool: "locate", input: {}, output: { city: "Bern" } } };
    const resume = resumed({ approved: true, decided_by: "ada" }, [located, { text: "Wait." }]);
    const { events } = await play(aiSdk(model, { tools: { pay, locate } }), turnOf("Pay", { resume }));
    expect(executed).toEqual(["paid 5"]);
    expect(events.slice(0, 2)).toEqual([
      { tool_result: { tool_call_id: "p", tool: "pay", output: { paid: 5 } } },
      { text_delta: { text: "Paid." } },
    ]);
    expect(promptOf(model)).toContain('"value":{"paid":5}');
    expect(promptOf(model)).toContain('"value":{"city":"Bern"}');
  });

  test("is not executed when it was denied, and the model gets the reason", async () => {
    const model = answers([...text("Fine."), finish()]);
    const resume = resumed({ approved: false, reason: "Too much", decided_by: "ada" });
    const { events } = await play(aiSdk(model, { tools: { pay } }), turnOf("Pay", { resume }));
    expect([executed, textOf(events)]).toEqual([[], "Fine."]);
    expect(events.some(({ tool_result }) => tool_result)).toBe(false);
    expect(promptOf(model)).toContain("Too much");
  });

  test("of the client is offered to the model, after those of the server", async () => {
    const model = answers([callOf("w", "where", {}), finish("tool-calls")]);
    const tools = [
      { name: "where", description: "Where the person is.", parameters: { properties: {} } },
      { name: "pay", description: "Not this one." },
    ];
    const { events } = await play(aiSdk(model, { tools: { pay } }), turnOf("Where?", { tools }));
    expect(events[0]).toEqual({
      tool_call: { tool_call_id: "w", tool: "where", input: {}, waits_for: "output" },
    });
    const offered = JSON.stringify(model.doStreamCalls[0]!.tools);
    expect(offered).toContain("Where the person is.");
    expect(offered).not.toContain("Not this one.");
  });

  test("in a run that ended before its execution has an error in the history", async () => {
    const model = answers([...text("Hm."), finish()]);
    const { messages } = resumed({ approved: true, decided_by: "ada" });
    await play(aiSdk(model, { tools: { pay } }), turnOf("Again", { history: messages }));
    expect(promptOf(model)).toContain("The call was interrupted.");
  });
});
