import type { EventJson } from "@khala/contracts/conversation/v1";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { testTurn } from "../turns/open_turn.ts";
import type { Engine, EngineEvent } from "./engine.ts";
import { runEngineTurn } from "./engine_turn.ts";

const turn = testTurn("hello", { messageId: "m" });

function turnOf(run: Engine["run"], publish?: (event: EventJson) => Promise<void> | undefined) {
  const clock = new ManualClock();
  const abort = new AbortController();
  const events: EventJson[] = [];
  const end = runEngineTurn({
    engine: { run },
    turn,
    signal: abort.signal,
    clock,
    publish(event) {
      events.push(event);
      return publish?.(event);
    },
  });
  return { clock, abort, events, end };
}

test("events without a message id belong to the turn's message, and others keep theirs", async () => {
  const { events, end } = turnOf(async function* () {
    yield { text_delta: { text: "a" } };
    yield { text_delta: { text: "b", message_id: "other" } };
    yield { tool_call: { tool_call_id: "t", tool: "search", input: { q: 1 } } };
    yield { custom: { name: "search_result", data: [1] } };
    yield { status: { text: "thinking" } };
    yield { message: { text: "whole" } };
  });
  expect(await end).toEqual({ finished: {}, abandoned: false });
  expect(events).toEqual([
    { text_delta: { message_id: "m", text: "a" } },
    { text_delta: { message_id: "other", text: "b" } },
    { tool_call: { message_id: "m", tool_call_id: "t", tool: "search", input: { q: 1 } } },
    { custom: { name: "search_result", data: [1], message_id: "m" } },
    { status: { text: "thinking" } },
    { message: { message_id: "m", role: "assistant", text: "whole", created_at: expect.any(String) } },
  ]);
});

test("keeps an engine's run_finished for the end, and asks it for nothing more", async () => {
  let ended = false;
  const { events, end } = turnOf(async function* () {
    try {
      yield { run_finished: { reason: "stop", usage: { output_tokens: 3 } } };
      yield { text_delta: { text: "never" } };
    } finally {
      ended = true;
    }
  });
  expect((await end).finished).toEqual({ reason: "stop", usage: { output_tokens: 3 } });
  expect(events).toEqual([]);
  expect(ended).toBe(true);
});

test.each([
  ["an unknown kind", { sing: { text: "la" } }],
  ["an unknown field", { text_delta: { text: "a", loud: true } }],
  ["a wrong type", { text_delta: { text: 7 } }],
  ["nothing", {}],
  ["no object", "text"],
  ["an event of the server's own", { run_stopped: {} }],
  ["a role that no message has", { message: { role: "ai", text: "hello" } }],
  ["a message id that cannot be stored", { text_delta: { message_id: "m".repeat(201), text: "a" } }],
  ["a message id with a NUL character", { message: { message_id: "a\0b", text: "hello" } }],
  ["a tool call without an id", { tool_call: { tool: "search", input: {} } }],
  [
    "a call for a client that nobody can answer",
    { tool_call: { tool_call_id: "ü", tool: "ask", waits_for: "output" } },
  ],
  ["a call that nobody can approve", { tool_approval_requested: { tool_call_id: "c".repeat(201) } }],
])("%s is refused, and ends the engine", async (_, event) => {
  let ended = false;
  const { events, end } = turnOf(async function* () {
    try {
      yield event as EngineEvent;
    } finally {
      ended = true;
    }
  });
  await expect(end).rejects.toThrow("The engine sent an");
  await new Promise(setImmediate);
  expect(events).toEqual([]);
  expect(ended).toBe(true);
});

test("drops events after the abort", async () => {
  const { events, end, abort } = turnOf(async function* () {
    yield { text_delta: { text: "a" } };
    abort.abort();
    yield { text_delta: { text: "b" } };
  });
  expect((await end).abandoned).toBe(false);
  expect(events).toHaveLength(1);
});

test("abandons an engine that ignores the signal after five seconds, and closes its iterator", async () => {
  const late = Promise.withResolvers<void>();
  let returned = false;
  const { events, end, abort, clock } = turnOf(() => ({
    [Symbol.asyncIterator]: () => ({
      next: () => late.promise.then(() => ({ value: { text_delta: { text: "late" } }, done: false })),
      async return() {
        returned = true;
        return { value: undefined, done: true };
      },
    }),
  }));
  abort.abort();
  await clock.advance(4_999);
  expect(returned).toBe(false);
  await clock.advance(1);
  expect((await end).abandoned).toBe(true);
  expect(returned).toBe(true);
  late.resolve();
  await new Promise(setImmediate);
  expect(events).toEqual([]);
  expect(clock.pending).toBe(0);
});

test("a full publisher makes the engine wait, but not after an abort", async () => {
  const never = new Promise<void>(() => {});
  const { end, abort, events } = turnOf(
    async function* () {
      yield { text_delta: { text: "a" } };
      yield { text_delta: { text: "b" } };
    },
    () => never,
  );
  await new Promise(setImmediate);
  expect(events).toHaveLength(1);
  abort.abort();
  await end;
  expect(events).toHaveLength(1);
});
