import { expect, test, vi } from "vitest";
import { FakeEnvironment, jwt, settled, testConnection } from "./test_support.ts";
import { Tokens } from "./tokens.ts";

/** Tokens that live five minutes from the moment they are asked for, by the server's clock. */
function issuer(now: () => number, ttl = 300) {
  let jti = 0;
  return vi.fn(async () => {
    const iat = Math.floor(now() / 1_000);
    return jwt({ iat, exp: iat + ttl, jti: ++jti });
  });
}

const nothing = { params: () => ({}), onJoined: () => {}, onEvent: () => {}, onLeft: () => {} };

test("replaces the token on the open socket in the last fifth of its lifetime", async () => {
  let now = () => 0;
  const source = issuer(() => now());
  const { place, connection, live } = testConnection(source);
  now = () => place.now();
  connection.channel("sync:v1", nothing);
  const socket = await live();
  socket.reply(socket.last("phx_join"));
  socket.alive = true;
  await place.pass(239_000);
  expect(source).toHaveBeenCalledTimes(1);
  await place.pass(1_000);
  expect(socket.last("auth").payload).toEqual({ token: await source.mock.results[1]!.value });
  socket.reply(socket.last("auth"), {});
  await place.pass(240_000);
  expect(source).toHaveBeenCalledTimes(3);
  expect(place.sockets).toHaveLength(1);
});

test("sends the new token on the sync channel, and joins it for that if necessary", async () => {
  let now = () => 0;
  const source = issuer(() => now(), 60);
  const { place, connection, live } = testConnection(source);
  now = () => place.now();
  const socket = await live();
  await place.pass(29_000);
  expect(source).toHaveBeenCalledTimes(1);
  await place.pass(1_000);
  expect(source).toHaveBeenCalledTimes(2);
  const join = socket.last("phx_join");
  expect(join.topic).toBe("sync:v1");
  socket.reply(join);
  const auth = socket.last("auth");
  expect(auth).toMatchObject({ topic: "sync:v1", payload: { token: await source.mock.results[1]!.value } });
  socket.reply(auth, { expires_at: "2026-11-15T00:00:00Z" });
  expect(socket.last("phx_leave")).toMatchObject({ topic: "sync:v1", joinRef: join.joinRef });
  expect(connection.status().state).toBe("live");
  expect(place.sockets).toHaveLength(1);
});

test("opens a new socket for a token of another user", async () => {
  const source = vi.fn(async () =>
    jwt({ sub: source.mock.calls.length === 1 ? "ada" : "bob", jti: source.mock.calls.length }),
  );
  const { place, connection, tokens, live } = testConnection(source);
  const socket = await live();
  await tokens.renew();
  expect(socket.closed).toBe(true);
  await place.pass(500);
  expect(place.sockets).toHaveLength(2);
  expect(connection.status().state).toBe("connecting");
});

test("retries a refused renewal while the old token lasts", async () => {
  let now = () => 0;
  const source = issuer(() => now(), 60);
  const { place, events, connection, live } = testConnection(source);
  now = () => place.now();
  connection.channel("sync:v1", nothing);
  const socket = await live();
  socket.reply(socket.last("phx_join"));
  socket.alive = true;
  await place.pass(30_000);
  socket.reply(socket.last("auth"), { error: { code: "invalid_token", message: "no" } }, "error");
  expect(events.map(({ event }) => event)).toEqual(["token_not_renewed"]);
  await place.pass(3_000);
  expect(source).toHaveBeenCalledTimes(3);
  expect(connection.status().state).toBe("live");
});

test("renews a token that became due during sleep at the next heartbeat", async () => {
  let now = () => 0;
  const source = issuer(() => now(), 900);
  const { place, live } = testConnection(source);
  now = () => place.now();
  await live();
  // The machine slept: its clock went on, and its timers did not.
  place.jumped = 800_000;
  await place.pass(30_000);
  expect(source).toHaveBeenCalledTimes(2);
});

test("a clock that is hours off makes a token neither expired nor eternal", async () => {
  for (const hours of [-5, 5]) {
    const place = new FakeEnvironment();
    place.jumped = hours * 3_600_000;
    const tokens = new Tokens(
      issuer(() => place.now() - place.jumped),
      place,
    );
    await tokens.get();
    expect(tokens.expired).toBe(false);
    expect(tokens.renewInMs()).toBeCloseTo(240_000, -4);
    await place.pass(290_000);
    expect(tokens.renewInMs()).toBeLessThanOrEqual(0);
    await place.pass(20_000);
    expect(tokens.expired).toBe(true);
  }
});

test("measures expiry by the server's time once it is known, even if the local clock jumps", async () => {
  const place = new FakeEnvironment();
  const tokens = new Tokens(
    issuer(() => place.now()),
    place,
  );
  await tokens.get();
  tokens.serverTime(place.now(), place.now());
  place.jumped = 7_200_000;
  // The clocks have not been compared since: the token looks old, and a new one is fetched rather than trusted.
  expect(tokens.expired).toBe(true);
  tokens.serverTime(place.now() - 7_200_000, place.now());
  expect(tokens.expired).toBe(false);
});

test("concurrent callers share one request for a new token", async () => {
  const source = vi.fn(async () => jwt({ jti: source.mock.calls.length }));
  const place = new FakeEnvironment();
  const tokens = new Tokens(source, place);
  const first = await tokens.get();
  const [a, b] = await Promise.all([tokens.renew(first.text), tokens.renew(first.text)]);
  expect(a).toBe(b);
  expect(await tokens.renew(first.text)).toBe(a);
  expect(source).toHaveBeenCalledTimes(2);
});

test("abandons a token request after 15 s", async () => {
  const place = new FakeEnvironment();
  const asked = new Tokens(() => new Promise(() => {}), place).get();
  const refused = expect(asked).rejects.toMatchObject({ code: "unavailable" });
  await place.pass(15_000);
  await refused;
});

test("reports a failing token source as unavailable, unless its error has a code of Khala's", async () => {
  const codeOf = (error: object) =>
    new Tokens(() => Promise.reject(error), new FakeEnvironment()).get().catch(({ code }) => code);
  expect(await codeOf(new Error("no network"))).toBe("unavailable");
  expect(await codeOf(Object.assign(new Error("who are you?"), { code: "ECONNREFUSED" }))).toBe(
    "unavailable",
  );
  expect(await codeOf(Object.assign(new Error("signed out"), { code: "missing_authorization" }))).toBe(
    "missing_authorization",
  );
});

test("reads the claims of a token, also beyond ASCII, and none of an opaque token", async () => {
  const place = new FakeEnvironment();
  const read = (text: string) => new Tokens(text, place).get();
  expect(await read(jwt({ sub: "Zoë", exp: 5, iat: 1 }))).toMatchObject({
    subject: "Zoë",
    org: "acme",
    expiresAt: 5_000,
    issuedAt: 1_000,
  });
  expect(await read("opaque")).toEqual({ text: "opaque", subject: "", org: "" });
  await settled();
});

test("explains origins to a page whose token function fails to fetch", async () => {
  const fail = () => Promise.reject(new TypeError("Failed to fetch"));
  const messageAt = (origin?: string) => {
    const place = new FakeEnvironment();
    return new Tokens(fail, origin === undefined ? place : Object.assign(place, { origin }))
      .get()
      .then(String, ({ message }: Error) => message);
  };
  expect(await messageAt("http://localhost:5173")).toMatch(
    /Failed to fetch\. .*http:\/\/localhost:5173.*backend/,
  );
  expect(await messageAt()).toBe("The client's `token` failed: Failed to fetch");
});

test("an outage of the token source neither fails nor delays requests while the token is valid", async () => {
  const place = new FakeEnvironment();
  let fails = false;
  const mint = issuer(() => place.now());
  const source = vi.fn(async () => {
    if (fails) throw new Error("no network");
    return mint();
  });
  const tokens = new Tokens(source, place);
  const first = await tokens.get();
  fails = true;
  await place.pass(250_000);
  for (let request = 0; request < 10; request++) expect(await tokens.get()).toBe(first);
  expect(source).toHaveBeenCalledTimes(2);
  await place.pass(45_000);
  // It lasts for five seconds more: the source is waited for, and fails.
  expect(await tokens.get()).toBe(first);
  await place.pass(1_000);
  fails = false;
  expect((await tokens.get()).text).not.toBe(first.text);
  fails = true;
  await place.pass(301_000);
  await expect(tokens.get()).rejects.toMatchObject({ code: "unavailable" });
});

test("sends a token replaced during the handshake once the sync channel is joined", async () => {
  const source = vi.fn(async () => jwt({ jti: source.mock.calls.length }));
  const { place, connection, tokens } = testConnection(source);
  connection.channel("sync:v1", nothing);
  await settled();
  const fresh = await tokens.renew();
  place.socket.onopen?.();
  const joins = () => place.socket.sent.filter(({ event }) => event === "phx_join");
  expect(joins()).toHaveLength(1);
  expect(place.socket.sent.some(({ event }) => event === "auth")).toBe(false);
  place.socket.reply(place.socket.last("phx_join"));
  expect(place.socket.last("auth").payload).toEqual({ token: fresh.text });
  expect(joins()).toHaveLength(1);
});
