import type { EventJson } from "@khala/contracts/conversation/v1";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { RunPublisher } from "./run_publisher.ts";

/** A publisher on a log whose appends are answered by hand, unless it is `quick`. */
function publisherOn({ quick = true } = {}) {
  const clock = new ManualClock();
  const appends: EventJson[][] = [];
  const answers: PromiseWithResolvers<void>[] = [];
  const failures: unknown[] = [];
  const publisher = new RunPublisher(clock, {
    runId: "r1",
    windowMs: 30,
    chars: 128,
    append(entries) {
      appends.push(entries.map((entry) => JSON.parse(entry).event));
      const answer = Promise.withResolvers<void>();
      answers.push(answer);
      if (quick) answer.resolve();
      return answer.promise;
    },
    onFailure: (error) => failures.push(error),
  });
  const say = (text: string, message_id = "m") => publisher.push({ text_delta: { message_id, text } });
  return { clock, publisher, appends, answers, failures, say, events: () => appends.flat() };
}

const textOf = (events: readonly EventJson[]) => events.map((event) => event.text_delta?.text ?? "").join("");
const settled = () => new Promise(setImmediate);

test("appends the first delta at once, and those within the window together", async () => {
  const { clock, say, events } = publisherOn();
  say("a");
  expect(textOf(events())).toBe("a");
  say("b");
  say("c");
  expect(textOf(events())).toBe("a");
  await clock.advance(30);
  expect(events().map((event) => event.text_delta?.text)).toEqual(["a", "bc"]);
});

test("appends the next delta at once after a pause", async () => {
  const { clock, say, events } = publisherOn();
  say("a");
  await clock.advance(31);
  say("b");
  await settled();
  expect(events().map((event) => event.text_delta?.text)).toEqual(["a", "b"]);
});

test("appends 128 characters without waiting for the window", async () => {
  const { say, events } = publisherOn();
  say("a");
  say("b".repeat(100));
  say("c".repeat(28));
  await settled();
  expect(events()).toHaveLength(2);
});

test("never joins deltas of different messages or kinds, and keeps their order", async () => {
  const { clock, publisher, say, events } = publisherOn();
  say("a");
  say("b");
  publisher.push({ reasoning_delta: { message_id: "m", text: "hm" } });
  say("c", "n");
  await clock.advance(30);
  expect(events().map((event) => Object.entries(event)[0])).toEqual([
    ["text_delta", { message_id: "m", text: "a" }],
    ["text_delta", { message_id: "m", text: "b" }],
    ["reasoning_delta", { message_id: "m", text: "hm" }],
    ["text_delta", { message_id: "n", text: "c" }],
  ]);
});

test("flushes waiting deltas before any other event", async () => {
  const { publisher, say, events } = publisherOn();
  say("a");
  say("b");
  publisher.push({ tool_call: { message_id: "m", tool_call_id: "t", tool: "x" } });
  say("c");
  await publisher.end({ run_finished: {} });
  expect(events().map((event) => Object.keys(event)[0])).toEqual([
    "text_delta",
    "text_delta",
    "tool_call",
    "text_delta",
    "run_finished",
  ]);
});

test("tokens do not wait for the log: one append at a time, and later tokens share the next", async () => {
  const { publisher, answers, appends, say, events, clock } = publisherOn({ quick: false });
  for (let i = 0; i < 300; i++) {
    expect(say("0123456789")).toBeUndefined();
    await clock.advance(1);
  }
  expect(appends).toHaveLength(1);
  answers[0]!.resolve();
  await settled();
  expect(appends).toHaveLength(2);
  expect(appends[1]!.length).toBeGreaterThan(1);
  answers[1]!.resolve();
  const ended = publisher.end({ run_finished: {} });
  await settled();
  for (const answer of answers) answer.resolve();
  await settled();
  for (const answer of answers) answer.resolve();
  await ended;
  expect(textOf(events())).toBe("0123456789".repeat(300));
});

test("the engine waits while more than 256 KB wait", async () => {
  const { answers, say } = publisherOn({ quick: false });
  let wait: Promise<void> | undefined;
  for (let i = 0; i < 20 && !wait; i++) wait = say("x".repeat(30_000));
  expect(wait).toBeDefined();
  let room = false;
  void wait!.then(() => {
    room = true;
  });
  await settled();
  expect(room).toBe(false);
  answers[0]!.resolve();
  await wait;
});

test("splits a long delta into entries that fit, without losing a character", async () => {
  const { publisher, say, events, appends } = publisherOn();
  const text = `x${"👋🏽".repeat(100_000)}${"\u0001".repeat(100_000)}`;
  say(text);
  publisher.push({ reasoning_delta: { message_id: "m", text } });
  await publisher.end({ run_finished: {} });
  expect(textOf(events()) === text).toBe(true);
  const thought = events().map((event) => event.reasoning_delta?.text ?? "");
  expect(thought.join("") === text).toBe(true);
  for (const event of appends.flat()) {
    const said = event.text_delta?.text ?? event.reasoning_delta?.text ?? "";
    expect(said.isWellFormed()).toBe(true);
    expect(Buffer.byteLength(JSON.stringify(event))).toBeLessThan(256 << 10);
  }
});

test("refuses an event too large for the log, and can still write the end", async () => {
  const { publisher, events } = publisherOn();
  const status = { status: { text: "x".repeat(300_000) } };
  expect(() => publisher.push(status)).toThrow(expect.objectContaining({ code: "payload_too_large" }));
  await publisher.end({ run_failed: { code: "too_large", message: "It is too large." } });
  expect(events()).toEqual([{ run_failed: expect.anything() }]);
});

test("writes nothing after a failed append, and releases waiting callers", async () => {
  const { publisher, answers, appends, failures, say } = publisherOn({ quick: false });
  let wait: Promise<void> | undefined;
  for (let i = 0; i < 4 && !wait; i++) wait = say("x".repeat(100_000));
  answers[0]!.reject(new Error("no log"));
  await wait;
  say("more");
  await expect(publisher.end({ run_finished: {} })).rejects.toThrow("no log");
  expect(failures).toHaveLength(1);
  expect(appends).toHaveLength(1);
});

test("an abandoned publisher writes nothing more and leaves no timer", async () => {
  const { publisher, clock, say, events } = publisherOn();
  say("a");
  say("b");
  await publisher.abandon();
  say("c");
  await clock.advance(100);
  expect(textOf(events())).toBe("a");
  expect(clock.pending).toBe(0);
});
