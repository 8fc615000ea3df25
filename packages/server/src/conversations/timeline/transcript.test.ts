import type { EventJson } from "@khala/contracts/conversation/v1";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Transcript } from "./transcript.ts";

const started = { run_started: { subject: "ann" } };

function transcriptOf(events: readonly EventJson[], runId = "run"): Transcript {
  const transcript = new Transcript();
  for (const [i, event] of events.entries()) transcript.add({ seq: BigInt(i + 1), runId, event });
  return transcript;
}

const delta = (text: string, message_id = "m"): EventJson => ({ text_delta: { message_id, text } });

test("a conversation comes to its messages, with what was said put together", () => {
  const transcript = transcriptOf([
    started,
    { message: { message_id: "u", role: "user", text: "Hi", created_at: "2026-11-15T08:00:00Z" } },
    { reasoning_delta: { message_id: "m", text: "Think" } },
    { reasoning_delta: { message_id: "m", text: "ing" } },
    delta("Hel"),
    delta("lo "),
    { tool_call: { message_id: "m", tool_call_id: "t", tool: "search", input: { q: 1 } } },
    { status: { text: "searching" } },
    { tool_result: { message_id: "m", tool_call_id: "t", tool: "search", output: ["a"] } },
    { custom: { name: "search_result", data: { hits: 1 }, message_id: "m" } },
    delta("there"),
    { run_finished: {} },
  ]);
  expect(transcript.last()).toEqual([
    {
      message_id: "u",
      role: "user",
      run_id: "run",
      parts: [{ text: "Hi" }],
      status: "done",
      truncated: false,
    },
    {
      message_id: "m",
      role: "assistant",
      run_id: "run",
      parts: [
        { reasoning: "Thinking" },
        { text: "Hello " },
        { tool: { tool_call_id: "t", tool: "search", input: { q: 1 }, output: ["a"] } },
        { custom: { name: "search_result", data: { hits: 1 }, message_id: "m" } },
        { text: "there" },
      ],
      status: "done",
      truncated: false,
    },
  ]);
  expect(transcript.running).toBeUndefined();
});

test("while a run is under way it is named, and its messages can be had alone", () => {
  const transcript = transcriptOf([started, delta("old", "a"), { run_finished: {} }], "first");
  transcript.add({ seq: 4n, runId: "second", event: started });
  transcript.add({ seq: 5n, runId: "second", event: delta("new", "b") });
  expect(transcript.running).toBe("second");
  expect(transcript.current().map(({ message_id, status }) => [message_id, status])).toEqual([
    ["b", "streaming"],
  ]);
  expect(transcript.last(1).map(({ message_id }) => message_id)).toEqual(["b"]);
});

test.each([
  [{ run_failed: { code: "engine_failed", message: "It broke." } }, "failed"],
  [{ run_stopped: {} }, "stopped"],
  [{ run_finished: {} }, "done"],
])("a run that ends with %o leaves its message as %s", (end, status) => {
  const transcript = transcriptOf([started, delta("half"), end]);
  expect(transcript.last()).toMatchObject([{ parts: [{ text: "half" }], status }]);
  expect(transcript.running).toBeUndefined();
});

test("a message whose beginning was trimmed away says so, and its run is still known to be under way", () => {
  const transcript = transcriptOf([delta("…the end")]);
  expect(transcript.current()).toMatchObject([{ parts: [{ text: "…the end" }], truncated: true }]);
  transcript.add({ seq: 2n, runId: "run", event: { run_finished: {} } });
  expect(transcript.running).toBeUndefined();
});

test("a result without its call, and an event without a run, are kept", () => {
  const result = {
    tool_result: { message_id: "m", tool_call_id: "t", tool: "search", error: "No network." },
  };
  expect(transcriptOf([result], "").last()).toMatchObject([
    { parts: [{ tool: { tool_call_id: "t", error: "No network." } }], truncated: false },
  ]);
});

test("what was handed out does not change under its reader", () => {
  const transcript = transcriptOf([started, delta("one")]);
  const before = transcript.last();
  transcript.add({ seq: 3n, runId: "run", event: delta(" two") });
  expect(before[0]!.parts).toEqual([{ text: "one" }]);
});

describe("however a text is cut into deltas", () => {
  test("it comes to the same", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme" })), (pieces) => {
        const whole = pieces.join("");
        const [message] = transcriptOf([started, ...pieces.map((piece) => delta(piece))]).last();
        expect(message?.parts?.[0]?.text ?? "").toBe(whole);
      }),
    );
  });
});
