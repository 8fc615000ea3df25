import { KhalaError } from "@khala/contracts";
import { beforeEach, expect, test } from "vitest";
import { settled } from "../conversation/test_support.ts";
import { handClient } from "../react/test_support.ts";

let hand: ReturnType<typeof handClient>;
beforeEach(() => {
  hand = handClient();
});

test("sends each request to its route", () => {
  const { ops } = hand.client;
  void ops.about();
  void ops.documents({ topic: "t", search: "run:", limit: 5 });
  void ops.history("run:a/b");
  void ops.traces({ correlation_id: "c" });
  void ops.trace("abc");
  void ops.conversations();
  void ops.failedRuns({ error_id: "e1" });
  void ops.audit({ action: "token.mint" });
  void ops.quotas({ org: "acme" });
  void ops.compareParity();
  expect(hand.http.last.method).toBe("POST");
  expect(hand.http.asked.map(({ path, options }) => [path, options.query])).toEqual([
    ["/ops/v1/about", undefined],
    ["/ops/v1/documents", { topic: "t", search: "run:", limit: 5 }],
    ["/ops/v1/history/run%3Aa%2Fb", undefined],
    ["/ops/v1/traces", { correlation_id: "c" }],
    ["/ops/v1/traces/abc", undefined],
    ["/ops/v1/conversations", {}],
    ["/ops/v1/failed-runs", { error_id: "e1" }],
    ["/ops/v1/audit", { action: "token.mint" }],
    ["/ops/v1/quotas", { org: "acme" }],
    ["/ops/v1/parity", undefined],
  ]);
});

test("subscribes to the overview while it has listeners, on one channel", () => {
  const { live } = hand.client.ops;
  let heard = 0;
  const stops = [live.subscribe(() => heard++), live.subscribe(() => {})];
  expect(hand.connection.channels).toHaveLength(1);
  const { channelNow } = hand.connection;
  expect(channelNow.topic).toBe("ops:v1");
  channelNow.join();
  channelNow.frame({ overview: { at: "now", uptime_s: 1 } });
  expect(live.state()).toMatchObject({ live: true, overview: { uptime_s: 1 } });
  expect(heard).toBe(2);
  for (const stop of stops) stop();
  expect(channelNow.left).toBe(true);
  expect(live.state()).toMatchObject({ live: false, overview: { uptime_s: 1 } });
});

test("keeps the last overview while disconnected, with the reason", () => {
  const { live } = hand.client.ops;
  live.subscribe(() => {});
  const { channelNow } = hand.connection;
  channelNow.join();
  channelNow.frame({ overview: { uptime_s: 1 } });
  channelNow.handlers.onLeft(new KhalaError("unavailable", "Gone."));
  expect(live.state()).toMatchObject({
    live: false,
    overview: { uptime_s: 1 },
    error: { code: "unavailable" },
  });
  channelNow.join();
  expect(live.state()).toEqual({ live: true, overview: { uptime_s: 1 } });
});

test("requests a refused overview again for the next subscriber", () => {
  const { live } = hand.client.ops;
  live.subscribe(() => {});
  hand.connection.channelNow.handlers.onLeft(new KhalaError("missing_scope", "No ops."));
  expect(live.state()).toMatchObject({ live: false, error: { code: "missing_scope" } });
  live.subscribe(() => {});
  hand.connection.channelNow.join();
  expect(hand.connection.channels).toHaveLength(2);
  expect(live.state()).toEqual({ live: true });
});

test("a follower tab requests by HTTP, and joins when it gets the socket", async () => {
  hand.connection.become({ role: "follower" });
  const { live } = hand.client.ops;
  const stop = live.subscribe(() => {});
  expect(hand.connection.channels).toHaveLength(0);
  hand.http.last.answer({ uptime_s: 1 });
  await settled();
  expect(live.state()).toEqual({ live: true, overview: { uptime_s: 1 } });
  hand.environment.pass(1_000);
  expect(hand.http.asked).toHaveLength(2);
  hand.connection.become({ role: "leader" });
  expect(hand.connection.channelNow.topic).toBe("ops:v1");
  hand.environment.pass(5_000);
  expect(hand.http.asked).toHaveLength(2);
  stop();
  expect(hand.connection.listeners).toBe(0);
});
