import type { EventJson } from "@khala/contracts/conversation/v1";
import { expect, test } from "vitest";
import { type AgUiEvent, AgUiEvents } from "./ag_ui_events.ts";

const message_id = "m1";
const text = (text: string): EventJson => ({ text_delta: { message_id, text } });

function play(events: readonly EventJson[], translator = new AgUiEvents("t1", "r1")): AgUiEvent[] {
  return [...translator.begin(), ...events.flatMap((event) => translator.event(event))];
}

test("begins with RUN_STARTED, ends with RUN_FINISHED, and closes everything opened in between", () => {
  const events = play([
    { run_started: {} },
    { status: { text: "Looking outside" } },
    { reasoning_delta: { message_id, text: "Hm." } },
    text("I "),
    text("look."),
    { tool_call: { message_id, tool_call_id: "c1", tool: "weather", input: { city: "Bern" } } },
    { tool_result: { message_id, tool_call_id: "c1", tool: "weather", output: { celsius: 7 } } },
    { custom: { message_id, name: "weather_result", data: { celsius: 7 } } },
    text("Cold."),
    { run_finished: { usage: { input_tokens: 3, output_tokens: 4 } } },
    text("late"),
  ]);
  expect(events).toEqual([
    { type: "RUN_STARTED", threadId: "t1", runId: "r1" },
    { type: "CUSTOM", name: "status", value: "Looking outside" },
    { type: "REASONING_START", messageId: "m1-reasoning" },
    { type: "REASONING_MESSAGE_START", messageId: "m1-reasoning", role: "reasoning" },
    { type: "REASONING_MESSAGE_CONTENT", messageId: "m1-reasoning", delta: "Hm." },
    { type: "REASONING_MESSAGE_END", messageId: "m1-reasoning" },
    { type: "REASONING_END", messageId: "m1-reasoning" },
    { type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "I " },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "look." },
    { type: "TEXT_MESSAGE_END", messageId: "m1" },
    { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "weather", parentMessageId: "m1" },
    { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: '{"city":"Bern"}' },
    { type: "TOOL_CALL_END", toolCallId: "c1" },
    {
      type: "TOOL_CALL_RESULT",
      messageId: "c1-result",
      toolCallId: "c1",
      content: '{"celsius":7}',
      role: "tool",
    },
    { type: "CUSTOM", name: "weather_result", value: { celsius: 7 } },
    { type: "TEXT_MESSAGE_START", messageId: "m1-2", role: "assistant" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m1-2", delta: "Cold." },
    { type: "TEXT_MESSAGE_END", messageId: "m1-2" },
    {
      type: "RUN_FINISHED",
      threadId: "t1",
      runId: "r1",
      usage: [{ inputTokens: 3, outputTokens: 4 }],
    },
  ]);
});

test("ends a failed run with RUN_ERROR, after closing what was open", () => {
  const events = play([text("a"), { run_failed: { code: "timeout", message: "It took too long." } }]);
  expect(events.slice(-2)).toEqual([
    { type: "TEXT_MESSAGE_END", messageId: "m1" },
    { type: "RUN_ERROR", message: "It took too long.", code: "timeout" },
  ]);
});

test("finishes a stopped run as cancelled", () => {
  expect(play([{ run_stopped: {} }]).at(-1)).toMatchObject({
    type: "RUN_FINISHED",
    outcome: { type: "cancelled" },
  });
});

test("gives the error of a failed tool as its result, and adds a missing call", () => {
  const events = play([
    { tool_result: { message_id, tool_call_id: "c1", tool: "weather", error: "There is no such place." } },
  ]);
  expect(events.map(({ type }) => type)).toEqual([
    "RUN_STARTED",
    "TOOL_CALL_START",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_END",
    "TOOL_CALL_RESULT",
  ]);
  expect(events.at(-1)).toMatchObject({ content: '{"error":"There is no such place."}' });
});

test("emits a repeated step once, and one that differs as a new message", () => {
  const resumed = { run_resumed: { attempt: 1, kept: [] } };
  const content = (events: readonly { type: string; delta?: unknown }[]) =>
    events.flatMap(({ type, delta }) => (type === "TEXT_MESSAGE_CONTENT" ? [delta] : []));
  expect(content(play([text("It is "), resumed, text("It is 7.")]))).toEqual(["It is ", "7."]);
  const differs = play([text("It is "), resumed, text("It was 7.")]);
  expect(content(differs)).toEqual(["It is ", "It was 7."]);
  expect(differs.filter(({ type }) => type === "TEXT_MESSAGE_START")).toHaveLength(2);
});
