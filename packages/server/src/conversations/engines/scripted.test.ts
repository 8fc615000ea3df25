import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { type Step, scripted, words } from "./scripted.ts";
import { play, textOf, turnOf } from "./test_support.ts";

test("gives the same events for the same turn", async () => {
  for (const message of ["hello there", "weather in Oslo", "/long 20", "/fail", "what is 6 * 7?"]) {
    const first = await play(scripted(), turnOf(message));
    expect(await play(scripted(), turnOf(message))).toEqual(first);
  }
});

test("echoes word by word, after reasoning, and reports its usage", async () => {
  const message = "  two\n words ";
  const { events, error } = await play(scripted(), turnOf(message));
  expect(error).toBeUndefined();
  expect(textOf(events)).toBe(`You said: ${message}`);
  expect(events[0]).toEqual({ reasoning_delta: { text: expect.any(String) } });
  expect(events.filter(({ text_delta }) => text_delta).length).toBeGreaterThan(3);
  expect(events.at(-1)).toEqual({
    run_finished: { reason: "stop", usage: { input_tokens: 3, output_tokens: 5 } },
  });
});

test("the words of a text join to the text", () => {
  for (const text of ["", " ", "a", " a  b\n\nc ", "ünï 👋🏽 code"]) expect(words(text).join("")).toBe(text);
});

test("calls a tool that answers with a custom event, and reports a failing tool", async () => {
  const { events } = await play(scripted(), turnOf("the weather in Oslo, and 6 * 7"));
  const said = JSON.stringify(events);
  const output = { city: "Oslo", celsius: expect.any(Number), sky: expect.any(String) };
  expect(events).toContainEqual({
    tool_call: { tool_call_id: "r1-weather", tool: "weather", input: { city: "Oslo" } },
  });
  expect(events).toContainEqual({ tool_result: { tool_call_id: "r1-weather", tool: "weather", output } });
  expect(events).toContainEqual({ custom: { name: "weather_result", data: output } });
  expect(events).toContainEqual({ custom: { name: "calculate_result", data: { value: 42 } } });
  expect(said.indexOf("tool_call")).toBeLessThan(said.indexOf("tool_result"));

  const failed = await play(scripted(), turnOf("weather in Nowhere"));
  expect(failed.events).toContainEqual({
    tool_result: { tool_call_id: "r1-weather", tool: "weather", error: "There is no such place." },
  });
  expect(JSON.stringify(failed.events)).not.toContain("weather_result");
});

test("/fail breaks off in the middle with a message for people", async () => {
  const { events, error } = await play(scripted(), turnOf("/fail the kettle is empty"));
  expect(textOf(events)).not.toBe("");
  expect(error).toMatchObject({ name: "PublicError", message: "the kettle is empty" });
});

test("/long has the requested length, up to the limit", async () => {
  const { events } = await play(scripted(), turnOf("/long 5000"));
  expect(textOf(events)).toBe(Array.from({ length: 5_000 }, (_, i) => i + 1).join(" "));
  const longest = await play(scripted(), turnOf("/long 999999999"));
  expect(longest.events).toHaveLength(100_001);
});

test("waits on the given clock, after each token and where the script asks for it", async () => {
  const clock = new ManualClock();
  const waits: number[] = [];
  const noting = {
    now: () => clock.now(),
    after(ms: number, fn: () => void) {
      waits.push(ms);
      return clock.after(ms, fn);
    },
  };
  const script = (): Step[] => [
    { text_delta: { text: "a" } },
    { waitMs: 1_000 },
    { status: { text: "b" } },
    { text_delta: { text: "c" } },
  ];
  let ended = false;
  const done = play(scripted({ script, tokenMs: 10, clock: noting }), turnOf("")).finally(() => {
    ended = true;
  });
  while (!ended) {
    await clock.advance(500);
    await new Promise(setImmediate);
  }
  expect((await done).events).toEqual(script().filter((step) => !("waitMs" in step)));
  expect(waits).toEqual([10, 1_000, 10]);
});

test("/slow ends when its signal aborts, without waiting for its end", async () => {
  const clock = new ManualClock();
  const stop = new AbortController();
  const { events, error } = await play(scripted({ clock }), turnOf("/slow one two three"), {
    signal: stop.signal,
    // Nobody moves the clock: only the signal can end the wait that follows.
    onEvent: () => setImmediate(() => stop.abort()),
  });
  expect(error).toBeUndefined();
  expect(textOf(events)).toBe("one");
  expect(clock.pending).toBe(0);
});

test("an asynchronous script gets the turn and the signal, and is closed when its reader stops", async () => {
  let closed = false;
  const stop = new AbortController();
  const engine = scripted({
    async *script(turn, signal) {
      try {
        yield { text_delta: { text: turn.message } };
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        yield { text_delta: { text: "too late" } };
      } finally {
        closed = true;
      }
    },
  });
  const { events } = await play(engine, turnOf("hello"), {
    signal: stop.signal,
    onEvent: () => setImmediate(() => stop.abort()),
  });
  expect(textOf(events)).toBe("hello");
  expect(closed).toBe(true);
});
