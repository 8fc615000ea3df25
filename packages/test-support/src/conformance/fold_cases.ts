import type { EventJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";

/** Events of the run `r`, and the messages that the server and the client make of them. */
export interface FoldCase {
  readonly name: string;
  readonly events: readonly EventJson[];
  readonly messages: readonly TranscriptMessageJson[];
}

const AT = "2026-11-15T08:00:00Z";
const started: EventJson = { run_started: { subject: "ann", started_at: AT } };
const asked: EventJson = {
  message: { message_id: "u", role: "user", text: "Hi", created_at: AT, parent_id: "before", author: "ann" },
};
const delta = (text: string, message_id = "m"): EventJson => ({ text_delta: { message_id, text } });
const call = (id: string): EventJson => ({
  tool_call: { message_id: "m", tool_call_id: id, tool: "search", input: { q: id } },
});
const result = (id: string): EventJson => ({
  tool_result: { message_id: "m", tool_call_id: id, tool: "search", output: [id] },
});

const question: TranscriptMessageJson = {
  message_id: "u",
  role: "user",
  run_id: "r",
  parts: [{ text: "Hi" }],
  status: "done",
  parent_id: "before",
  author: "ann",
  created_at: AT,
};
const answer = (parts: TranscriptMessageJson["parts"], of: TranscriptMessageJson = {}) => ({
  message_id: "m",
  role: "assistant",
  run_id: "r",
  parts: parts!,
  status: "done",
  parent_id: "u",
  created_at: AT,
  ...of,
});
const tool = (id: string) => ({ tool: { tool_call_id: id, tool: "search", input: { q: id }, output: [id] } });
const file = { url: "/files/f", media_type: "image/png", name: "a.png", size: "3" };
const decision = { approved: false, reason: "Too much.", decided_by: "ann", decided_at: AT };
const source = { source_id: "s", url: "https://example.com", title: "Example" };

/** The cases of the fold, which the server and the client both run. */
export const FOLD_CASES: readonly FoldCase[] = [
  {
    name: "orders parts by their beginning, and joins deltas",
    events: [
      started,
      asked,
      { reasoning_delta: { message_id: "m", text: "Think" } },
      { reasoning_delta: { message_id: "m", text: "ing" } },
      delta("Hel"),
      delta("lo "),
      call("t"),
      { status: { text: "searching" } },
      result("t"),
      { custom: { name: "search_result", data: { hits: 1 }, message_id: "m" } },
      { file_added: { message_id: "m", file } },
      { source_added: { message_id: "m", source } },
      delta("there"),
      { run_finished: {} },
    ],
    messages: [
      question,
      answer([
        { reasoning: "Thinking" },
        { text: "Hello " },
        tool("t"),
        { custom: { name: "search_result", data: { hits: 1 }, message_id: "m" } },
        { file },
        { source },
        { text: "there" },
      ]),
    ],
  },
  {
    name: "keeps the parts of a message",
    events: [{ message: { message_id: "u", role: "user", parts: [{ text: "See" }, { file }] } }],
    messages: [
      { message_id: "u", role: "user", run_id: "r", parts: [{ text: "See" }, { file }], status: "done" },
    ],
  },
  {
    name: "replaces the message with the same id in place",
    events: [
      started,
      asked,
      delta("half"),
      { message: { message_id: "u", role: "user", text: "Hello", parent_id: "before", created_at: AT } },
      { message: { message_id: "m", role: "assistant", text: "whole", created_at: AT } },
    ],
    messages: [
      {
        message_id: "u",
        role: "user",
        run_id: "r",
        parts: [{ text: "Hello" }],
        status: "done",
        parent_id: "before",
        created_at: AT,
      },
      answer([{ text: "whole" }]),
    ],
  },
  {
    name: "keeps the messages of a run in order",
    events: [started, asked, delta("one"), delta("two", "n"), { run_stopped: {} }],
    messages: [
      question,
      answer([{ text: "one" }], { status: "stopped" }),
      answer([{ text: "two" }], { message_id: "n", parent_id: "m", status: "stopped" }),
    ],
  },
  {
    name: "cuts a resumed run back to the kept part, and continues it",
    events: [
      started,
      asked,
      delta("one "),
      call("a"),
      result("a"),
      delta("lost"),
      call("b"),
      delta("lost as well", "n"),
      { run_resumed: { attempt: 1, kept: [{ message_id: "m", parts: 2 }] } },
      delta("two"),
    ],
    messages: [question, answer([{ text: "one " }, tool("a"), { text: "two" }], { status: "streaming" })],
  },
  {
    name: "restarts a resumed run without a kept part",
    events: [started, asked, delta("lost"), { run_resumed: { attempt: 1 } }, delta("again")],
    messages: [question, answer([{ text: "again" }], { status: "streaming" })],
  },
  {
    name: "a tool call has its pending approval or output, and the decision",
    events: [
      started,
      asked,
      { tool_call: { message_id: "m", tool_call_id: "a", tool: "pay", input: 1 } },
      { tool_call: { message_id: "m", tool_call_id: "b", tool: "ask", input: 2, waits_for: "output" } },
      { tool_approval_requested: { message_id: "m", tool_call_id: "a" } },
      { tool_approval_requested: { message_id: "m", tool_call_id: "unknown" } },
      { run_waiting: {} },
      { tool_approval_decided: { message_id: "m", tool_call_id: "a", decision } },
      { tool_result: { message_id: "m", tool_call_id: "b", tool: "ask", output: "Bern" } },
      { run_resumed: { attempt: 0, kept: [{ message_id: "m", parts: 2 }] } },
      delta("Thanks."),
    ],
    messages: [
      question,
      answer(
        [
          { tool: { tool_call_id: "a", tool: "pay", input: 1, waits_for: "approval", decision } },
          { tool: { tool_call_id: "b", tool: "ask", input: 2, waits_for: "output", output: "Bern" } },
          { text: "Thanks." },
        ],
        { status: "streaming" },
      ),
    ],
  },
  {
    name: "keeps a result without its call",
    events: [{ tool_result: { message_id: "m", tool_call_id: "t", tool: "search", error: "No network." } }],
    messages: [
      {
        message_id: "m",
        role: "assistant",
        run_id: "r",
        parts: [{ tool: { tool_call_id: "t", tool: "search", error: "No network." } }],
        status: "streaming",
      },
    ],
  },
  {
    name: "leaves an event without a message id out of every message",
    events: [{ custom: { name: "ping", data: 1 } }, { status: { text: "busy" } }],
    messages: [],
  },
];
