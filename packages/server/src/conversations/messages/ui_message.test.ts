import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { convertToModelMessages, type UIMessage, validateUIMessages } from "ai";
import { expect, test } from "vitest";
import { uiMessageOf } from "./ui_message.ts";

const asked: TranscriptMessageJson = {
  message_id: "u",
  role: "user",
  run_id: "r",
  author: "ada",
  created_at: "2026-11-18T08:00:00.000Z",
  status: "done",
  parts: [
    { text: "What is this?" },
    { file: { url: "https://example.com/a.png", media_type: "image/png", name: "a.png", size: "3" } },
  ],
};
const answered: TranscriptMessageJson = {
  message_id: "m",
  role: "assistant",
  run_id: "r",
  status: "done",
  parts: [
    { reasoning: "Let me look." },
    { tool: { tool_call_id: "a", tool: "search", input: { q: 1 }, output: ["hit"] } },
    { tool: { tool_call_id: "b", tool: "search", input: { q: 2 }, error: "No network." } },
    { source: { source_id: "s", url: "https://example.com", title: "Example" } },
    { custom: { name: "search_result", data: { hits: 1 }, message_id: "m" } },
    { text: "A cat." },
  ],
};
const growing: TranscriptMessageJson = {
  message_id: "n",
  role: "assistant",
  run_id: "s",
  status: "streaming",
  parts: [{ tool: { tool_call_id: "c", tool: "look-up", input: {} } }, { text: "An" }],
};

test("a message has the parts, states and metadata of a UIMessage", () => {
  expect([asked, answered, growing].map(uiMessageOf)).toEqual([
    {
      id: "u",
      role: "user",
      metadata: { created_at: "2026-11-18T08:00:00.000Z", status: "done", run_id: "r", author: "ada" },
      parts: [
        { type: "text", text: "What is this?", state: "done" },
        { type: "file", mediaType: "image/png", url: "https://example.com/a.png", filename: "a.png" },
      ],
    },
    {
      id: "m",
      role: "assistant",
      metadata: { status: "done", run_id: "r" },
      parts: [
        { type: "reasoning", text: "Let me look.", state: "done" },
        { type: "tool-search", toolCallId: "a", state: "output-available", input: { q: 1 }, output: ["hit"] },
        {
          type: "tool-search",
          toolCallId: "b",
          state: "output-error",
          input: { q: 2 },
          errorText: "No network.",
        },
        { type: "source-url", sourceId: "s", url: "https://example.com", title: "Example" },
        { type: "data-search_result", data: { hits: 1 } },
        { type: "text", text: "A cat.", state: "done" },
      ],
    },
    {
      id: "n",
      role: "assistant",
      metadata: { status: "streaming", run_id: "s" },
      parts: [
        { type: "tool-look-up", toolCallId: "c", state: "input-available", input: {} },
        { type: "text", text: "An", state: "streaming" },
      ],
    },
  ]);
});

test("a waiting tool call, and a decided one, have the states and approvals of the AI SDK", async () => {
  const call = { tool: "pay", input: { euros: 5 }, waits_for: "approval" };
  const decision = { approved: true, reason: "Fine.", decided_by: "ada" };
  const waiting: TranscriptMessageJson = {
    message_id: "w",
    role: "assistant",
    parts: [
      { tool: { ...call, tool_call_id: "1" } },
      { tool: { ...call, tool_call_id: "2", decision } },
      { tool: { ...call, tool_call_id: "3", decision, output: "paid" } },
      { tool: { ...call, tool_call_id: "4", decision: { ...decision, approved: false } } },
      { tool: { ...call, tool_call_id: "5", waits_for: "output" } },
    ],
  };
  const message = uiMessageOf(waiting);
  expect(message.parts).toMatchObject([
    { state: "approval-requested", approval: { id: "1" } },
    { state: "approval-responded", approval: { id: "2", approved: true, reason: "Fine." } },
    { state: "output-available", approval: { id: "3", approved: true }, output: "paid" },
    { state: "output-denied", approval: { id: "4", approved: false, reason: "Fine." } },
    { state: "input-available" },
  ]);
  expect(await validateUIMessages({ messages: [message] })).toHaveLength(1);
});

test("a call that its run left behind is offered to nobody", async () => {
  const parts = [
    { tool: { tool_call_id: "1", tool: "pay", input: {}, waits_for: "approval" } },
    {
      tool: {
        tool_call_id: "2",
        tool: "pay",
        input: {},
        waits_for: "approval",
        decision: { approved: true },
      },
    },
    {
      tool: {
        tool_call_id: "3",
        tool: "pay",
        input: {},
        waits_for: "approval",
        decision: { approved: false },
      },
    },
    { tool: { tool_call_id: "4", tool: "locate", input: {}, waits_for: "output" } },
    { tool: { tool_call_id: "5", tool: "search", input: {}, output: 1 } },
  ];
  for (const status of ["stopped", "failed"]) {
    const message = uiMessageOf({ message_id: "m", role: "assistant", status, parts });
    expect(message.parts).toMatchObject([
      { state: "output-error", errorText: "The call was interrupted." },
      { state: "output-error", approval: { id: "2", approved: true } },
      { state: "output-denied" },
      { state: "output-error" },
      { state: "output-available" },
    ]);
    expect(await validateUIMessages({ messages: [message] })).toHaveLength(1);
  }
});

test("the AI SDK accepts the messages, and converts them to a model's messages", async () => {
  const messages = await validateUIMessages<UIMessage>({
    messages: [asked, answered, growing].map(uiMessageOf),
  });
  const forModel = await convertToModelMessages(messages);
  expect(forModel.map(({ role }) => role)).toEqual(expect.arrayContaining(["user", "assistant", "tool"]));
  expect(JSON.stringify(forModel)).toContain("A cat.");
  expect(JSON.stringify(forModel)).toContain("a.png");
});
