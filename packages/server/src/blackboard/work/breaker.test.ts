import { ManualClock } from "@khala/testing/kit/manual_clock";
import { expect, test } from "vitest";
import { type BreakerState, openBreaker } from "./breaker.ts";

const never = new AbortController().signal;

function opened({ failures = 3, random = () => 1 } = {}) {
  const clock = new ManualClock();
  const states: BreakerState[] = [];
  const breaker = openBreaker({ clock, random }, { failures, base: 1_000, cap: 4_000 }, (state) =>
    states.push(state),
  );
  const fail = (times: number) => {
    for (let time = 0; time < times; time++) breaker.enter()?.said("failed");
  };
  return { clock, breaker, states, fail };
}

test("it opens after so many failures in a row, and not before", () => {
  const { breaker, fail } = opened();
  fail(2);
  breaker.enter()?.said("succeeded");
  fail(2);
  expect(breaker.state()).toBe("closed");
  fail(1);
  expect(breaker.state()).toBe("open");
  expect(breaker.enter()).toBeUndefined();
});

test("half open it lets one through, whose success closes it", async () => {
  const { breaker, clock, fail, states } = opened();
  fail(3);
  await clock.advance(1_000);
  expect(breaker.state()).toBe("half_open");
  const trial = breaker.enter();
  expect(trial).toBeDefined();
  expect(breaker.enter()).toBeUndefined();
  trial?.said("succeeded");
  expect(states).toEqual(["open", "half_open", "closed"]);
  fail(2);
  expect(breaker.state()).toBe("closed");
});

test("a trial that fails opens it again, for longer each time up to the cap", async () => {
  const { breaker, clock, fail } = opened();
  fail(3);
  for (const ms of [1_000, 2_000, 4_000, 4_000]) {
    await clock.advance(ms - 1);
    expect(breaker.state()).toBe("open");
    await clock.advance(1);
    expect(breaker.state()).toBe("half_open");
    breaker.enter()?.said("failed");
  }
  await clock.advance(4_000);
  breaker.enter()?.said("succeeded");
  fail(3);
  await clock.advance(1_000);
  expect(breaker.state()).toBe("half_open");
});

test("a trial that says nothing leaves the place to another", async () => {
  const { breaker, clock, fail } = opened();
  fail(3);
  await clock.advance(1_000);
  breaker.enter()?.said("dropped");
  expect(breaker.state()).toBe("half_open");
  expect(breaker.enter()).toBeDefined();
});

test("what began before it opened says nothing about it afterwards", async () => {
  const { breaker, clock, fail } = opened();
  const [early, late] = [breaker.enter(), breaker.enter()];
  fail(3);
  early?.said("succeeded");
  expect(breaker.state()).toBe("open");
  await clock.advance(1_000);
  late?.said("failed");
  expect(breaker.state()).toBe("half_open");
});

test("a permit counts once", () => {
  const { breaker } = opened();
  const permit = breaker.enter();
  for (let time = 0; time < 5; time++) permit?.said("failed");
  expect(breaker.state()).toBe("closed");
});

test("those who wait hear when somebody may work, or when they need not wait any more", async () => {
  const { breaker, clock, fail } = opened();
  await breaker.ready(never);
  fail(3);
  const stop = new AbortController();
  const heard: string[] = [];
  const patient = breaker.ready(never).then(() => heard.push("patient"));
  const hasty = breaker.ready(stop.signal).then(() => heard.push("hasty"));
  stop.abort();
  await hasty;
  expect(heard).toEqual(["hasty"]);
  await clock.advance(1_000);
  await patient;
  expect(heard).toEqual(["hasty", "patient"]);
});
