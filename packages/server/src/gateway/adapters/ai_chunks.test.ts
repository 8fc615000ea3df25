import type { EventJson } from "@khala/contracts/conversation/v1";
import { readUIMessageStream, type UIMessage, type UIMessageChunk, uiMessageChunkSchema } from "ai";
import { expect, test } from "vitest";
import { Transcript } from "../../conversations/timeline/transcript.ts";
import { type AiChunk, AiChunks } from "./ai_chunks.ts";

const message_id = "m1";
const text = (text: string): EventJson => ({ text_delta: { message_id, text } });
const reasoning = (text: string): EventJson => ({ reasoning_delta: { message_id, text } });
const call = (tool_call_id: string): EventJson => ({
  tool_call: { message_id, tool_call_id, tool: "weather", input: { city: "Bern" } },
});
const result = (tool_call_id: string): EventJson => ({
  tool_result: { message_id, tool_call_id, tool: "weather", output: { celsius: 7 } },
});

const EVERYTHING: readonly EventJson[] = [
  { message: { message_id: "u1", role: "user", text: "How is the weather?" } },
  { run_started: { subject: "ada" } },
  { status: { text: "Looking outside" } },
  reasoning("Let me "),
  reasoning("see."),
  text("I "),
  text("look."),
  call("c1"),
  call("c2"),
  result("c1"),
  { tool_result: { message_id, tool_call_id: "c2", tool: "weather", error: "There is no such place." } },
  { custom: { message_id, name: "weather_result", data: { celsius: 7 } } },
  text("It is "),
  text("cold."),
  { run_finished: { reason: "stop" } },
];

function play(events: readonly EventJson[], chunks = new AiChunks("r1")): AiChunk[] {
  return events.flatMap((event) => chunks.event(event));
}

/** The message that the AI SDK makes of the chunks. */
async function read(
  chunks: readonly AiChunk[],
): Promise<{ message: UIMessage | undefined; errors: string[] }> {
  const errors: string[] = [];
  const stream = ReadableStream.from(chunks.map((chunk) => structuredClone(chunk) as UIMessageChunk));
  let message: UIMessage | undefined;
  const messages = readUIMessageStream({ stream, onError: (error) => errors.push((error as Error).message) });
  for await (const next of messages) message = next;
  return { message, errors };
}

/** Collapsed after `count` events, then live. */
function resumed(events: readonly EventJson[], count: number): AiChunk[] {
  const transcript = new Transcript();
  for (const event of events.slice(0, count)) transcript.add({ runId: "r1", event });
  const chunks = new AiChunks("r1");
  return [...chunks.replay(transcript.last()), ...play(events.slice(count), chunks)];
}

test("a run is one UI message, with its parts in the order of its events", () => {
  expect(play(EVERYTHING)).toEqual([
    { type: "data-status", data: "Looking outside", transient: true },
    { type: "start", messageId: "m1" },
    { type: "start-step" },
    { type: "reasoning-start", id: "0" },
    { type: "reasoning-delta", id: "0", delta: "Let me " },
    { type: "reasoning-delta", id: "0", delta: "see." },
    { type: "reasoning-end", id: "0" },
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: "I " },
    { type: "text-delta", id: "1", delta: "look." },
    { type: "text-end", id: "1" },
    expect.objectContaining({ type: "tool-input-available", toolCallId: "c1", input: { city: "Bern" } }),
    expect.objectContaining({ type: "tool-input-available", toolCallId: "c2" }),
    expect.objectContaining({ type: "tool-output-available", toolCallId: "c1", output: { celsius: 7 } }),
    expect.objectContaining({
      type: "tool-output-error",
      toolCallId: "c2",
      errorText: "There is no such place.",
    }),
    { type: "data-weather_result", data: { celsius: 7 } },
    { type: "text-start", id: "2" },
    { type: "text-delta", id: "2", delta: "It is " },
    { type: "text-delta", id: "2", delta: "cold." },
    { type: "text-end", id: "2" },
    { type: "finish-step" },
    { type: "finish" },
  ]);
});

test("every chunk matches the AI SDK's schema", async () => {
  const chunks = [
    ...play(EVERYTHING),
    ...play([text("a"), { run_stopped: {} }]),
    ...new AiChunks("r1").fail("no"),
  ];
  const schema = typeof uiMessageChunkSchema === "function" ? uiMessageChunkSchema() : uiMessageChunkSchema;
  for (const chunk of chunks) expect(await schema.validate!(chunk)).toMatchObject({ success: true });
});

test("a client that resumes after any event has the same message as one from the start", async () => {
  const { message: whole } = await read(play(EVERYTHING));
  expect(whole).toMatchObject({ id: "m1", role: "assistant" });
  for (let count = 0; count <= EVERYTHING.length - 1; count++) {
    const { message } = await read(resumed(EVERYTHING, count));
    expect(message?.id).toBe("m1");
    expect(message?.parts).toEqual(whole?.parts);
  }
});

test("collapses a replay into one delta per part, which stays open for later deltas", () => {
  expect(resumed([{ run_started: {} }, text("a"), text("b"), text("c"), text("d")], 4)).toEqual([
    { type: "start", messageId: "m1" },
    { type: "start-step" },
    { type: "text-start", id: "0" },
    { type: "text-delta", id: "0", delta: "abc" },
    { type: "text-delta", id: "0", delta: "d" },
  ]);
});

test("a failed run closes its parts and reports the error", async () => {
  const chunks = play([
    text("a"),
    { run_failed: { code: "timeout", message: "It took too long." } },
    text("late"),
  ]);
  expect(chunks.slice(3)).toEqual([
    { type: "text-delta", id: "0", delta: "a" },
    { type: "text-end", id: "0" },
    { type: "error", errorText: "It took too long." },
    { type: "finish-step" },
    { type: "finish" },
  ]);
  expect((await read(chunks)).errors).toEqual(["It took too long."]);
});

test("a stopped run closes its parts and is aborted", () => {
  const chunks = play([reasoning("a"), { run_stopped: { reason: "asked" } }]);
  expect(chunks.slice(4)).toEqual([
    { type: "reasoning-end", id: "0" },
    { type: "abort" },
    { type: "finish-step" },
    { type: "finish" },
  ]);
});

test("a run without events leaves no message, and a whole message is one part", async () => {
  expect(play([{ run_started: {} }, { run_finished: {} }])).toEqual([
    { type: "start" },
    { type: "start-step" },
    { type: "finish-step" },
    { type: "finish" },
  ]);
  const { message } = await read(
    play([{ message: { message_id, role: "assistant", text: "Hello." } }, { run_finished: {} }]),
  );
  expect(message?.parts).toMatchObject([
    { type: "step-start" },
    { type: "text", text: "Hello.", state: "done" },
  ]);
});

test("emits a result whose call was trimmed, and null for an empty output", async () => {
  const { message, errors } = await read(
    play([{ tool_result: { message_id, tool_call_id: "c9", tool: "clock" } }, { run_finished: {} }]),
  );
  expect(errors).toEqual([]);
  expect(message?.parts[1]).toMatchObject({ type: "tool-clock", state: "output-available", output: null });
});

test("messages of one run follow each other as parts", async () => {
  const other: EventJson = { text_delta: { message_id: "m2", text: "b" } };
  const { message } = await read(play([text("a"), other, { run_finished: {} }]));
  expect(message?.id).toBe("m1");
  expect(message?.parts).toMatchObject([{ type: "step-start" }, { text: "a" }, { text: "b" }]);
});

test.each([
  ["repeats", ["It is ", "7 degrees."], ["It is 7 degrees."]],
  ["repeats in other pieces", ["It ", "is 7", " degrees."], ["It is 7 degrees."]],
  ["differs", ["It ", "was 7."], ["It is ", "It was 7."]],
])("a step that was taken back and then %s continues the message", async (_, again, texts) => {
  const kept = [{ message_id, parts: 2 }];
  const events = [
    text("I look."),
    call("c1"),
    result("c1"),
    text("It is "),
    { run_resumed: { attempt: 1, kept } },
    ...again.map(text),
    { run_finished: {} },
  ];
  const chunks = new AiChunks("r1");
  const { message } = await read(events.flatMap((event) => chunks.event(event)));
  const said = message!.parts.flatMap((part) => (part.type === "text" ? [part.text] : []));
  expect(said).toEqual(["I look.", ...texts]);
});

test("ends a call that was taken back, and accepts the same call again", async () => {
  const chunks = new AiChunks("r1");
  const taken = { run_resumed: { attempt: 1, kept: [] } };
  const events = [
    text("I look."),
    call("c1"),
    taken,
    text("I look."),
    call("c1"),
    result("c1"),
    { run_finished: {} },
  ];
  const { message } = await read(events.flatMap((event) => chunks.event(event)));
  expect(message!.parts.filter(({ type }) => type === "text")).toHaveLength(1);
  expect(message!.parts.filter(({ type }) => type === "tool-weather")).toMatchObject([
    { state: "output-available", output: { celsius: 7 } },
  ]);
});
