import type { EventJson } from "@khala/contracts/conversation/v1";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { FollowedEvent } from "../../conversations/plane.ts";
import { followRun } from "./ai_run.ts";

const RUN = { caller: testViewer(), convId: "c1", runId: "r1", after: "", begun: false };

/** A conversation whose log holds these events; the runs are answered on request. */
function conversation(entries: readonly [runId: string, event: EventJson][], runs: readonly string[] = []) {
  const asked: string[] = [];
  const state = { left: false };
  return {
    asked,
    state,
    async *follow(_caller: unknown, _convId: string, _after: string, signal: AbortSignal) {
      try {
        for (const [runId, event] of entries) {
          const followed: FollowedEvent = { seq: 1n, cursor: "", runId, event };
          yield followed;
        }
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
      } finally {
        state.left = true;
      }
    },
    async run() {
      const [run_id = "", status = ""] = (runs[asked.length] ?? runs.at(-1) ?? "").split(" ");
      asked.push(run_id);
      return { run_id, status };
    },
  };
}

const text = (text: string): EventJson => ({ text_delta: { text } });

test("follows a run's own events, and those without a run, from its start to its end", async () => {
  const plane = conversation([
    ["", text("before")],
    ["r0", text("another's")],
    ["r1", { run_started: {} }],
    ["", text("nobody's")],
    ["r2", text("another's")],
    ["r1", text("mine")],
    ["r1", { run_finished: {} }],
    ["", text("after")],
  ]);
  const events: (EventJson | undefined)[] = [];
  const signal = new AbortController().signal;
  for await (const event of followRun(await testContext(), plane, RUN, signal)) events.push(event);
  expect(events).toEqual([{ run_started: {} }, text("nobody's"), text("mine"), { run_finished: {} }]);
  expect(plane.state.left).toBe(true);
});

test("sends keep-alives while a run is silent or waits in the queue", async () => {
  const clock = new ManualClock();
  const plane = conversation([], ["r1 queued", "r1 queued", "r1 running"]);
  const leaving = new AbortController();
  const events = followRun(await testContext({ clock }), plane, RUN, leaving.signal);
  for (let i = 0; i < 4; i++) {
    const next = events.next();
    await clock.advance(10_000);
    expect(await next).toEqual({ done: false, value: undefined });
  }
  const last = events.next();
  leaving.abort();
  expect(await last).toEqual({ done: true, value: undefined });
  expect(plane.state.left).toBe(true);
  expect(clock.pending).toBe(0);
});

test("does not wait for a finished run without a readable end", async () => {
  for (const over of ["r1 failed", "r1 stopped"]) {
    const clock = new ManualClock();
    const plane = conversation([], [over]);
    const events = followRun(
      await testContext({ clock }),
      plane,
      { ...RUN, begun: true },
      AbortSignal.any([]),
    );
    const first = events.next();
    await clock.advance(10_000);
    expect((await first).value).toBeUndefined();
    const second = expect(events.next()).rejects.toMatchObject({ code: "unavailable" });
    await clock.advance(10_000);
    await second;
    expect(plane.state.left).toBe(true);
  }
});
