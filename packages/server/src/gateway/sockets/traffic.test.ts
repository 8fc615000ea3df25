import { expect, test } from "vitest";
import { systemClock } from "../../kit/clock.ts";
import { openTraffic } from "./traffic.ts";

test("counts errors by code, and refusals of tokens and scopes separately", () => {
  const traffic = openTraffic(systemClock);
  for (const code of ["not_found", "not_found", "missing_scope", "overloaded"] as const)
    traffic.refused(code);
  expect(traffic.errors().map(({ code, count }) => [code, count])).toEqual([
    ["not_found", 2],
    ["missing_scope", 1],
    ["overloaded", 1],
  ]);
  expect(traffic.totals()).toEqual({ sockets: 0, errors: 4, refused: 2, slowCloses: 0 });
});

test("remembers an org's last closes, newest first, and no other org's", () => {
  const traffic = openTraffic(systemClock);
  for (let code = 4_000; code < 4_300; code++) {
    traffic.opened();
    traffic.closed("acme", { subject: "ada", code, reason: "slow_consumer", kind: "phoenix" });
  }
  const closes = traffic.closes("acme");
  expect(closes).toHaveLength(200);
  expect(closes[0]).toMatchObject({ subject: "ada", code: 4_299, at: expect.stringMatching(/Z$/) });
  expect(traffic.closes("other")).toEqual([]);
  expect(traffic.totals()).toMatchObject({ sockets: 0, slowCloses: 300 });
});

test("cuts a client's reason, and forgets orgs without a recent close", () => {
  const traffic = openTraffic(systemClock);
  traffic.closed("first", { subject: "s", code: 1_000, reason: "x".repeat(5_000), kind: "ai" });
  expect(traffic.closes("first")[0]!.reason).toHaveLength(123);
  for (let i = 0; i < 1_000; i++) traffic.closed(`org-${i}`, { subject: "s", code: 1_000, kind: "ai" });
  expect(traffic.closes("first")).toEqual([]);
});
