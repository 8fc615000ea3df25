import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { describe, expect, test } from "vitest";
import { type BreakerState, openBreaker, openBreakers } from "./breaker.ts";

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

test("opens after the set number of failures in a row, and not before", () => {
  const { breaker, fail } = opened();
  fail(2);
  breaker.enter()?.said("succeeded");
  fail(2);
  expect(breaker.state()).toBe("closed");
  fail(1);
  expect(breaker.state()).toBe("open");
  expect(breaker.enter()).toBeUndefined();
});

test("half open, lets one task through, whose success closes it", async () => {
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

test("opens again when the trial fails, for longer each time up to the cap", async () => {
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

test("a trial without an outcome lets another one try", async () => {
  const { breaker, clock, fail } = opened();
  fail(3);
  await clock.advance(1_000);
  breaker.enter()?.said("dropped");
  expect(breaker.state()).toBe("half_open");
  expect(breaker.enter()).toBeDefined();
});

test("ignores the outcome of tasks that began before it opened", async () => {
  const { breaker, clock, fail } = opened();
  const [early, late] = [breaker.enter(), breaker.enter()];
  fail(3);
  early?.said("succeeded");
  expect(breaker.state()).toBe("open");
  await clock.advance(1_000);
  late?.said("failed");
  expect(breaker.state()).toBe("half_open");
});

test("counts a permit once", () => {
  const { breaker } = opened();
  const permit = breaker.enter();
  for (let time = 0; time < 5; time++) permit?.said("failed");
  expect(breaker.state()).toBe("closed");
});

test("returns how long a task has to wait", async () => {
  const { breaker, clock, fail } = opened();
  expect(breaker.wait()).toBe(0);
  fail(3);
  await clock.advance(400);
  expect(breaker.wait()).toBe(600);
  await clock.advance(600);
  expect(breaker.wait()).toBe(0);
  const trial = breaker.enter();
  expect(breaker.wait()).toBe(1_000);
  trial?.said("succeeded");
  expect(breaker.wait()).toBe(0);
});

describe("the breakers of an agent", () => {
  function openedFor(maxOrgs: number) {
    const clock = new ManualClock();
    const breakers = openBreakers({ clock, random: () => 1 }, { failures: 2, base: 1_000, maxOrgs });
    const fail = (org: string, times = 1) => {
      for (let time = 0; time < times; time++) breakers.enter(org)?.said("failed");
    };
    return { clock, breakers, fail };
  }

  test("failures of one org do not affect another", async () => {
    const { clock, breakers, fail } = openedFor(10);
    fail("evil", 2);
    expect(breakers.enter("evil")).toBeUndefined();
    expect([breakers.wait("evil"), breakers.wait("acme")]).toEqual([1_000, 0]);
    expect([breakers.state("evil"), breakers.state("acme"), breakers.state()]).toEqual([
      "open",
      "closed",
      "open",
    ]);
    expect(breakers.enter("acme")).toBeDefined();
    expect(breakers.open()).toBe(1);
    await clock.advance(1_000);
    breakers.enter("evil")?.said("succeeded");
    expect([breakers.state(), breakers.open()]).toEqual(["closed", 0]);
  });

  test("counts failures in a row only: a success resets them", () => {
    const { breakers, fail } = openedFor(10);
    for (let i = 0; i < 5; i++) {
      fail("acme");
      breakers.enter("acme")?.said("succeeded");
    }
    expect(breakers.state("acme")).toBe("closed");
  });

  test("are bounded: the least recently used closed ones are dropped first", () => {
    const { breakers, fail } = openedFor(2);
    fail("a", 2);
    fail("b");
    fail("c");
    // Starts from the beginning.
    fail("b");
    expect([breakers.state("a"), breakers.state("b")]).toEqual(["open", "closed"]);
  });
});
