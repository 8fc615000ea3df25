import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { FOLD_CASES } from "@khala/test-support/conformance/fold_cases";
import { describe, expect, test } from "vitest";
import { apply, asked, delta, eventFrame, finished, framesOf, ofRun, started } from "./test_support.ts";
import { EMPTY, leavesGap, reduce, restoreState, withoutRun } from "./transcript.ts";

test.each(FOLD_CASES)("$name", ({ events, messages }) => {
  expect(apply(framesOf(ofRun("r", ...events))).messages).toEqual(messages);
});

test("the end of a run sets the outcome", () => {
  expect(apply(framesOf(ofRun("r", started, asked("Hi"), delta("Hello"), finished)))).toMatchObject({
    run: null,
    outcome: { run_id: "r", status: "finished", reason: "stop" },
    cursor: "e-4",
    seq: "4",
  });
});

test("a waiting run lists its pending calls until they are decided and it resumes", () => {
  const waits_for = [{ tool_call_id: "t", tool: "pay", waits_for: "approval" }];
  const waiting = apply(framesOf(ofRun("r", started, { run_waiting: { calls: waits_for } })));
  expect(waiting.run).toMatchObject({ status: "waiting", waits_for });
  const decided = { tool_approval_decided: { tool_call_id: "t", decision: { approved: true } } };
  const then = reduce(waiting, eventFrame({ runId: "r", event: decided }, 3));
  expect(then.run).toMatchObject({ status: "waiting", waits_for: [] });
  const resumed = reduce(then, eventFrame({ runId: "r", event: { run_resumed: { attempt: 0 } } }, 4));
  expect(resumed.run).toEqual({ run_id: "r", status: "running" });
});

test("shows a status until the next event replaces it", () => {
  const searching = apply(framesOf(ofRun("r", started, { status: { text: "searching" } })));
  expect(searching.activity).toBe("searching");
  expect(reduce(searching, eventFrame({ runId: "r", event: delta("a") }, 3)).activity).toBeUndefined();
});

test.each([
  [{ run_failed: { code: "engine_failed", message: "It broke." } }, "failed", { code: "engine_failed" }],
  [{ run_stopped: { reason: "stopped" } }, "stopped", { reason: "stopped" }],
])("a run that ends with %o leaves its message as %s and says why", (end, status, why) => {
  const transcript = apply(framesOf(ofRun("r", started, delta("half"), end)));
  expect(transcript.messages).toMatchObject([{ parts: [{ text: "half" }], status }]);
  expect(transcript).toMatchObject({ run: null, outcome: { run_id: "r", status, ...why } });
});

test("an object changes only when its content changes", () => {
  const before = apply(
    framesOf(ofRun("r", started, asked("Hi"), delta("a"), { custom: { message_id: "m" } })),
  );
  const after = reduce(before, eventFrame({ runId: "r", event: delta("b") }, 5));
  expect(after.messages[0]).toBe(before.messages[0]);
  expect(after.messages[1]).not.toBe(before.messages[1]);
  expect(after.messages[1]!.parts![0]).toBe(before.messages[1]!.parts![0]);
  expect(after.run).toBe(before.run);
  expect(reduce(after, eventFrame({ runId: "r", event: delta("b") }, 5))).toBe(after);
  const snapshot = { type: "snapshot", messages: structuredClone([...after.messages]), cursor: "e-5" };
  expect(reduce(after, snapshot).messages).toBe(after.messages);
});

test("tells a gap in the sequence from the next event", () => {
  const transcript = apply(framesOf(ofRun("r", started)));
  expect(leavesGap(transcript, eventFrame({ runId: "r", event: delta("a") }, 2))).toBe(false);
  expect(leavesGap(transcript, eventFrame({ runId: "r", event: delta("b") }, 3))).toBe(true);
  const later = reduce(transcript, { type: "snapshot", messages: [], cursor: "e-7" });
  expect(leavesGap(later, eventFrame({ runId: "r", event: delta("b") }, 8))).toBe(false);
});

test("a hello sets no cursor: the earlier messages are not loaded yet", () => {
  const hello = { type: "hello", conv_id: "c", cursor: "e-9", run: { run_id: "r", status: "running" } };
  expect(reduce(EMPTY, hello)).toMatchObject({ cursor: "", run: { run_id: "r" } });
});

test("a run record that lags behind its log does not show the run again", () => {
  const transcript = apply(framesOf(ofRun("r", started, delta("a"), finished)));
  const hello = { type: "hello", cursor: "e-3", run: { run_id: "r", status: "running" } };
  expect(reduce(transcript, hello).run).toBeNull();
  const fresh = apply([hello, { type: "snapshot", messages: [...transcript.messages], cursor: "e-3" }]);
  expect(fresh.run).toBeNull();
  expect(withoutRun(reduce(EMPTY, hello)).run).toBeNull();
});

describe("after resync", () => {
  const before = apply(framesOf(ofRun("r", started, asked("old"), delta("gone"))));
  const kept: TranscriptMessageJson[] = [
    { message_id: "new", role: "user", run_id: "s", parts: [{ text: "!" }] },
  ];

  test("keeps the messages shown until the snapshot replaces them", () => {
    const waiting = reduce(before, { type: "resync", reason: "trimmed" });
    expect(waiting.messages).toBe(before.messages);
    const after = reduce(waiting, { type: "snapshot", messages: kept, cursor: "f-1" });
    expect(after).toMatchObject({ messages: kept, cursor: "f-1" });
    // Numbers may start again.
    expect(reduce(after, eventFrame({ runId: "s", event: delta("b") }, 2)).messages).toHaveLength(2);
  });

  test("keeps older messages when the snapshot continues them", () => {
    const waiting = reduce(before, { type: "resync", reason: "trimmed" });
    const messages = [{ ...kept[0]!, parent_id: "u" }];
    const after = reduce(waiting, { type: "snapshot", messages, cursor: "f-1" });
    expect(after.messages.map(({ message_id }) => message_id)).toEqual(["u", "new"]);
  });

  test("removes a deleted conversation at once, with its cursor", () => {
    const after = reduce(before, { type: "resync", reason: "deleted" });
    expect(after).toMatchObject({ messages: [], run: null, cursor: "", seq: "0" });
  });
});

describe("the state of another tab", () => {
  const log = ofRun("r", started, asked("Hi"), delta("a"), delta("b"), delta("c"));
  const state = apply(framesOf(log));

  test("is continued by the next event", () => {
    const after = reduce(restoreState(EMPTY, state), eventFrame({ runId: "r", event: delta("d") }, 6));
    expect(after.messages[1]!.parts).toEqual([{ text: "abcd" }]);
  });

  test("is ignored when it is older, so that no word disappears and returns", () => {
    const older = apply(framesOf(log.slice(0, 3)));
    expect(restoreState(state, older)).toBe(state);
  });

  test("is used when it is another conversation under the same name", () => {
    const other = apply(framesOf(ofRun("s", started, asked("New", "v"))));
    expect(restoreState(state, other).messages).toEqual(other.messages);
  });
});
