import type { EventJson } from "@khala/contracts/conversation/v1";
import { FOLD_CASES } from "@khala/test-support/conformance/fold_cases";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Transcript } from "./transcript.ts";

const started = { run_started: { subject: "ann" } };

function transcriptOf(events: readonly EventJson[], runId = "run"): Transcript {
  const transcript = new Transcript();
  for (const event of events) transcript.add({ runId, event });
  return transcript;
}

const delta = (text: string, message_id = "m"): EventJson => ({ text_delta: { message_id, text } });

test.each(FOLD_CASES)("$name", ({ events, messages }) => {
  expect(transcriptOf(events, "r").last()).toEqual(messages);
});

test("names the active run until it ends", () => {
  const transcript = transcriptOf([started, delta("old", "a"), { run_finished: {} }], "first");
  expect(transcript.running).toBeUndefined();
  transcript.add({ runId: "second", event: started });
  transcript.add({ runId: "second", event: delta("new", "b") });
  expect(transcript.running).toBe("second");
  expect(transcript.last(1).map(({ message_id }) => message_id)).toEqual(["b"]);
});

test("continues stored messages", () => {
  const before = transcriptOf([started, delta("Hel")]).last();
  const transcript = new Transcript(before);
  transcript.add({ runId: "run", event: delta("lo") });
  transcript.add({ runId: "run", event: { run_finished: {} } });
  expect(transcript.last()).toEqual(transcriptOf([started, delta("Hello"), { run_finished: {} }]).last());
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

test("messages returned before do not change", () => {
  const transcript = transcriptOf([started, delta("one")]);
  const before = transcript.last();
  transcript.add({ runId: "run", event: delta(" two") });
  expect(before[0]!.parts).toEqual([{ text: "one" }]);
});

describe("a text cut into any deltas", () => {
  test("is the same text", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme" })), (pieces) => {
        const whole = pieces.join("");
        const [message] = transcriptOf([started, ...pieces.map((piece) => delta(piece))]).last();
        expect(message?.parts?.[0]?.text ?? "").toBe(whole);
      }),
    );
  });
});
