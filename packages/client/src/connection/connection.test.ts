import { KhalaError, phoenix } from "@khala/contracts";
import { expect, test, vi } from "vitest";
import { UNUSED_MS } from "./connection.ts";
import type { ChannelHandlers } from "./port.ts";
import { jwt, settled, testConnection } from "./test_support.ts";

/** Handlers that record their calls. */
function recorder(): ChannelHandlers & { readonly told: unknown[] } {
  const told: unknown[] = [];
  return {
    told,
    params: () => ({ after: told.length }),
    onJoined: (reply) => void told.push(["joined", reply]),
    onEvent: (event, payload) => void told.push([event, payload]),
    onLeft: (error) => void told.push(["left", error?.code]),
  };
}

test("opens a socket with the token for the first channel, and joins it", async () => {
  const { place, connection } = testConnection("a token");
  await settled();
  expect(place.sockets).toEqual([]);
  expect(connection.status()).toMatchObject({ state: "idle", role: "own" });
  const handlers = recorder();
  connection.channel("room:1", handlers);
  await settled();
  expect(place.socket.url).toBe("ws://khala.test/socket/websocket?vsn=2.0.0");
  expect(place.socket.protocols).toEqual(phoenix.tokenProtocols("a token"));
  expect(connection.status().state).toBe("connecting");
  place.socket.onopen?.();
  expect(connection.status().state).toBe("live");
  const join = place.socket.last("phx_join");
  expect(join).toMatchObject({ topic: "room:1", payload: { after: 0 } });
  expect(join.joinRef).toBe(join.ref);
  place.socket.push("room:1", "early", {});
  place.socket.reply(join, { hello: 1 });
  place.socket.push("room:1", "frame", { n: 1 });
  place.socket.push("room:1", "frame", { n: 2 }, "an earlier join");
  expect(handlers.told).toEqual([
    ["joined", { hello: 1 }],
    ["frame", { n: 1 }],
  ]);
});

test("keeps the same status object until something changes", async () => {
  const { connection, live } = testConnection();
  await live();
  const status = connection.status();
  const listener = vi.fn();
  connection.subscribe(listener);
  connection.progress("live");
  connection.connect();
  expect(connection.status()).toBe(status);
  expect(listener).not.toHaveBeenCalled();
  connection.progress("replaying");
  expect(connection.status()).toMatchObject({ state: "replaying" });
  expect(listener).toHaveBeenCalledOnce();
});

test("reconnects with full jitter that doubles up to its cap, and rejoins its channels", async () => {
  const { place, connection, live } = testConnection();
  const handlers = recorder();
  connection.channel("room:1", handlers);
  await live();
  place.socket.reply(place.socket.last("phx_join"));
  place.socket.end();
  await settled();
  expect(handlers.told).toEqual([
    ["joined", {}],
    ["left", "unavailable"],
  ]);
  const waits: number[] = [];
  for (let attempt = 1; attempt <= 9; attempt++) {
    const { retryAt, state, error } = connection.status();
    expect({ state, code: error?.code }).toEqual({ state: "connecting", code: "unavailable" });
    waits.push(retryAt! - place.now());
    const opened = place.sockets.length;
    await place.pass(waits.at(-1)! - 1);
    expect(place.sockets).toHaveLength(opened);
    await place.pass(1);
    expect(place.sockets).toHaveLength(opened + 1);
    place.socket.end();
    await settled();
  }
  expect(waits).toEqual([250, 2_500, 2_500, 2_500, 4_000, 8_000, 15_000, 15_000, 15_000]);
  await place.pass(15_000);
  place.socket.onopen?.();
  expect(connection.status()).toMatchObject({ state: "live", attempt: 0 });
  expect(place.socket.last("phx_join")).toMatchObject({ topic: "room:1" });
});

test("resets the backoff only after ten seconds live", async () => {
  const { place, connection, live } = testConnection();
  await live();
  const wait = async () => {
    place.socket.end();
    await settled();
    return connection.status().retryAt! - place.now();
  };
  expect(await wait()).toBe(250);
  await place.pass(250);
  place.socket.onopen?.();
  await place.pass(9_000);
  expect(await wait()).toBe(2_500);
  await place.pass(2_500);
  place.socket.onopen?.();
  await place.pass(10_000);
  expect(await wait()).toBe(250);
});

test("waits as long as an overloaded server asks", async () => {
  const { place, connection, live } = testConnection();
  connection.channel("sync:v1", recorder());
  const socket = await live();
  socket.reply(socket.last("phx_join"));
  const error = { code: "overloaded", message: "busy", retry_after_ms: 5_000 };
  socket.push("sync:v1", "frame", { error });
  socket.end(1013, "overloaded");
  expect(connection.status()).toMatchObject({ retryAt: place.now() + 5_250, error: { code: "overloaded" } });
});

test("parks after two refused tokens in a row, with the reason; connect asks for a new token", async () => {
  const source = vi.fn(async () => jwt({ jti: source.mock.calls.length }));
  const refusal = new KhalaError("token_revoked", "It was taken back.");
  const { place, connection } = testConnection(source, async () => refusal);
  connection.connect();
  await settled();
  place.socket.end();
  await settled();
  expect(connection.status()).toMatchObject({ state: "connecting", error: refusal });
  await place.pass(250);
  expect(source).toHaveBeenCalledTimes(2);
  place.socket.end();
  await settled();
  expect(connection.status()).toMatchObject({ state: "unauthorised", error: refusal });
  expect(connection.status()).not.toHaveProperty("retryAt");
  await place.pass(600_000);
  expect(place.sockets).toHaveLength(2);
  connection.connect();
  await settled();
  expect(source).toHaveBeenCalledTimes(3);
  expect(place.sockets).toHaveLength(3);
});

test("parks at once on a close that no token fixes, and retries on a temporary one", async () => {
  const { connection, live } = testConnection();
  (await live()).end(4403, "origin_not_allowed");
  expect(connection.status()).toMatchObject({ state: "unauthorised", error: { code: "origin_not_allowed" } });
  (await live()).end(4429, "limit_exceeded");
  expect(connection.status()).toMatchObject({ state: "connecting", error: { code: "limit_exceeded" } });
});

test("explains a refused handshake by the expired token, without asking the server", async () => {
  const diagnose = vi.fn(async () => undefined);
  const { place, connection, tokens } = testConnection(jwt({ iat: 400, exp: 700 }), diagnose);
  tokens.serverTime(place.now(), place.now());
  connection.connect();
  await settled();
  place.socket.end();
  await settled();
  expect(connection.status()).toMatchObject({ error: { code: "token_expired" } });
  expect(diagnose).not.toHaveBeenCalled();
});

test("retries a failing token source, and parks when it reports a signed-out user", async () => {
  let failure: Error = new Error("no network");
  const { place, connection } = testConnection(() => Promise.reject(failure));
  connection.connect();
  await settled();
  expect(connection.status()).toMatchObject({ state: "connecting", error: { code: "unavailable" } });
  failure = new KhalaError("missing_authorization", "Sign in.");
  await place.pass(250);
  await place.pass(2_500);
  expect(connection.status()).toMatchObject({ state: "unauthorised", error: failure });
});

test("drops a silent connection: a heartbeat every 30 s must be answered within 10", async () => {
  const { place, connection, live } = testConnection();
  const socket = await live();
  await place.pass(30_000);
  socket.reply(socket.last("heartbeat"));
  await place.pass(30_000);
  expect(socket.sent.filter(({ event }) => event === "heartbeat")).toHaveLength(2);
  await place.pass(9_999);
  expect(connection.status().state).toBe("live");
  await place.pass(1);
  expect(connection.status().state).toBe("connecting");
  expect(socket.closed).toBe(true);
});

test("abandons a socket that does not open in time", async () => {
  const { place, connection } = testConnection();
  connection.connect();
  await place.pass(15_000);
  expect(place.sockets[0]?.closed).toBe(true);
  expect(connection.status()).toMatchObject({ state: "connecting", error: { code: "unavailable" } });
});

test("reconnects slowly while the page is hidden, and at once when it becomes visible", async () => {
  const { place, connection, live } = testConnection();
  await live();
  place.visible.set(false);
  place.socket.end();
  expect(connection.status().retryAt! - place.now()).toBe(2_500);
  place.visible.set(true);
  await settled();
  expect(place.sockets).toHaveLength(2);
});

test("is offline without a network, and reconnects at once when it returns", async () => {
  const { place, connection, live } = testConnection();
  const socket = await live();
  place.online.set(false);
  expect(connection.status()).toMatchObject({ state: "offline", error: { code: "unavailable" } });
  expect(socket.closed).toBe(true);
  place.online.set(true);
  await settled();
  expect(place.sockets).toHaveLength(2);
  place.socket.onopen?.();
  expect(connection.status()).not.toHaveProperty("error");
});

test("started without a network, is offline after each attempt until the network returns", async () => {
  const { place, connection } = testConnection();
  place.online.set(false);
  connection.connect();
  for (const sockets of [1, 2, 3]) {
    await settled();
    expect(place.sockets).toHaveLength(sockets);
    place.socket.end();
    await settled();
    expect(connection.status()).toMatchObject({ state: "offline", error: { code: "unavailable" } });
    await place.pass(15_000);
  }
  place.online.set(true);
  await settled();
  place.socket.onopen?.();
  expect(connection.status()).toMatchObject({ state: "live" });
});

test("opens no socket while paused, until connect", async () => {
  const { place, connection, live } = testConnection();
  const socket = await live();
  connection.pause();
  expect(socket.closed).toBe(true);
  place.online.set(true);
  await place.pass(120_000);
  expect(place.sockets).toHaveLength(1);
  expect(connection.status().state).toBe("paused");
  connection.connect();
  await settled();
  expect(place.sockets).toHaveLength(2);
});

test("leaves no timer and no socket after close", async () => {
  const { place, connection, live } = testConnection(async () => jwt({ iat: 1_000, exp: 1_300 }));
  connection.channel("room:1", recorder());
  await live();
  connection.close();
  expect(place.timers).toBe(0);
  connection.connect();
  await settled();
  expect(place.sockets).toHaveLength(1);
});

test("delivers a reply before the events that follow it, even when they arrive together", async () => {
  const { connection, live } = testConnection();
  const order: unknown[] = [];
  const channel = connection.channel("room:1", { ...recorder(), onEvent: (event) => void order.push(event) });
  const socket = await live();
  socket.reply(socket.last("phx_join"));
  const pushed = channel.push("ask", {}, () => order.push("reply")).then(() => order.push("resolved"));
  socket.reply(socket.last("ask"), {});
  socket.push("room:1", "frame", {});
  expect(order).toEqual(["reply", "frame"]);
  await pushed;
});

test("rejects a push with the server's error, without a connection, and without a reply in time", async () => {
  const { place, connection, live } = testConnection();
  const channel = connection.channel("room:1", recorder());
  await expect(channel.push("ask", {})).rejects.toMatchObject({ code: "unavailable" });
  const socket = await live();
  socket.reply(socket.last("phx_join"));
  const refused = channel.push("ask", {});
  socket.reply(socket.last("ask"), { error: { code: "missing_scope", message: "No." } }, "error");
  await expect(refused).rejects.toMatchObject({ code: "missing_scope", message: "No." });
  const late = channel.push("ask", {});
  place.pass(10_000);
  await expect(late).rejects.toMatchObject({ code: "unavailable" });
});

test("retries a join refused temporarily, not one refused permanently", async () => {
  const { place, connection, live } = testConnection();
  const busy = recorder();
  const never = recorder();
  connection.channel("busy", busy);
  connection.channel("never", never);
  const socket = await live();
  const joins = () => socket.sent.filter(({ event }) => event === "phx_join");
  const [first, second] = joins();
  socket.reply(first!, { error: { code: "unavailable", message: "later" } }, "error");
  socket.reply(second!, { error: { code: "missing_scope", message: "no" } }, "error");
  await place.pass(5_000);
  expect(joins().map(({ topic }) => topic)).toEqual(["busy", "never", "busy"]);
  expect(never.told).toEqual([["left", "missing_scope"]]);
  socket.reply(joins()[2]!);
  expect(busy.told).toEqual([
    ["left", "unavailable"],
    ["joined", {}],
  ]);
});

test("rejoins a channel after a temporary error of the server", async () => {
  const { place, connection, live } = testConnection();
  const handlers = recorder();
  connection.channel("room:1", handlers);
  const socket = await live();
  const join = socket.last("phx_join");
  socket.reply(join);
  socket.push("room:1", "frame", { type: "error", code: "internal", message: "a fault" });
  socket.push("room:1", "phx_error", {}, join.joinRef);
  expect(handlers.told.at(-1)).toEqual(["left", "internal"]);
  await place.pass(1_000);
  expect(socket.last("phx_join").ref).not.toBe(join.ref);
});

test("clients of a lost server reconnect spread over seconds", async () => {
  const returns: number[] = [];
  for (let client = 0; client < 50; client++) {
    const { place, connection, live } = testConnection();
    place.randomly = client / 50;
    await live();
    place.socket.end();
    await place.pass(500);
    // The server is not there yet.
    place.socket.end();
    await settled();
    returns.push(connection.status().retryAt! - place.now());
  }
  expect(Math.max(...returns) - Math.min(...returns)).toBeGreaterThan(4_500);
});

test("closes the socket a while after the last channel is left, and opens one for the next channel", async () => {
  const { place, connection, live } = testConnection();
  const first = connection.channel("room:1", recorder());
  const socket = await live();
  const second = connection.channel("room:2", recorder());
  first.leave();
  await place.pass(UNUSED_MS);
  expect(socket.closed).toBe(false);
  second.leave();
  await place.pass(UNUSED_MS - 1);
  connection.channel("room:3", recorder()).leave();
  await place.pass(UNUSED_MS - 1);
  expect(socket.closed).toBe(false);
  await place.pass(1);
  expect(socket.closed).toBe(true);
  expect(connection.status()).toMatchObject({ state: "idle", attempt: 0 });
  expect(place.timers).toBe(0);
  connection.channel("room:4", recorder());
  await settled();
  expect(place.sockets).toHaveLength(2);
});
