import { RawClient, Refused, until } from "@khala/test-support/clients/clients";
import { listAll } from "@khala/test-support/clients/lists";
import { answerOf, openPhoenix, PHOENIX_CLIENTS } from "@khala/test-support/clients/phoenix";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer, WORKERS } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const clock = new JumpClock();
let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, {
    clock,
    settings: { KHALA_AUTH_ISSUER_KEY: "the-key-of-the-issuer" },
  });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

async function joined(token: string, at = server): Promise<RawClient> {
  const raw = await RawClient.connect(at.socketUrl, { token });
  await raw.join();
  return raw;
}

const jtiOf = (token: string): string =>
  JSON.parse(String(Buffer.from(token.split(".")[1]!, "base64url"))).jti;

describe("a token on an open socket", () => {
  test("can be refreshed, and the socket then lives as long as the new token", async () => {
    await using raw = await joined(await server.token({ ttl_s: 60 }));
    await raw.subscribe(RUNS);
    clock.jump(50_000);
    const { status, response } = await raw.push<{ expires_at: string }>("sync:v1", "auth", {
      token: await server.token({ ttl_s: 60 }),
    });
    expect(status).toBe("ok");
    expect(Date.parse(response.expires_at)).toBeGreaterThan(clock.now() + 50_000);
    clock.jump(30_000);
    await raw.push("phoenix", "heartbeat");
    expect(raw.closed).toBeUndefined();
    // Same rights: what was followed is followed on, without a word.
    expect(raw.frames.filter((frame) => frame.error)).toEqual([]);
    await server.write({ key: "run:refreshed", version: 1, org: "org-1", payload: {} });
    await until("an update", () => raw.updates.length, { on: raw });
  });

  test("closes the socket with 4401 when it expires, after an error frame", async () => {
    await using raw = await joined(await server.token({ ttl_s: 60 }));
    clock.jump(61_000);
    expect(await raw.ended()).toEqual({ code: 4401, reason: "token_expired" });
    expect(raw.frames.at(-1)).toMatchObject({ error: { code: "token_expired" } });
  });

  test("that has expired opens no socket, even within the clock skew", async () => {
    const token = await server.token({ ttl_s: 60 });
    clock.jump(61_000);
    const refusal = await RawClient.connect(server.socketUrl, { token }).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(Refused);
    expect(refusal).toMatchObject({ status: 403, body: { error: { code: "token_expired" } } });
  });

  test("cannot be replaced by one of another subject or org", async () => {
    await using raw = await joined(await server.token());
    for (const claims of [{ sub: "user-2" }, { org_id: "org-2" }]) {
      const answer = await raw.push("sync:v1", "auth", { token: await server.token(claims) });
      expect(answer).toMatchObject({ status: "error", response: { error: { code: "subject_mismatch" } } });
    }
    const answer = await raw.push("sync:v1", "auth", { token: "not.a.token" });
    expect(answer).toMatchObject({ status: "error", response: { error: { code: "invalid_token" } } });
    expect(await raw.push("sync:v1", "auth", {})).toMatchObject({
      status: "error",
      response: { error: { code: "missing_authorization" } },
    });
    await raw.subscribe(RUNS);
  });

  test("with other rights makes followed topics stale, and they resume after a new list", async () => {
    const org = "other-rights";
    await using raw = await joined(await server.token({ org_id: org, scopes: [RUNS, WORKERS] }));
    const before = await raw.subscribe([RUNS, WORKERS]);
    const token = await server.token({ org_id: org, scopes: [RUNS] });
    expect((await raw.push("sync:v1", "auth", { token })).status).toBe("ok");
    const stale = raw.frames.flatMap((frame) => frame.error?.topics ?? []);
    expect(stale.map(({ topic }) => topic).sort()).toEqual([WORKERS, RUNS].sort());
    for (const { topic, sent, floor } of stale) {
      expect(sent).toEqual(before[topic]);
      expect(floor.epoch).not.toBe(sent.epoch);
    }
    await server.write({ key: `run:${org}`, version: 1, org, payload: {} });
    const { cursor, documents } = await listAll(server, token, RUNS);
    expect(documents).toHaveLength(1);
    await raw.subscribe(RUNS, { [RUNS]: cursor });
    await raw.frame("the replay", ({ update_batch }) => update_batch?.replay_complete);
    expect(raw.updates).toEqual([]);
    const refusal = await raw.push("sync:v1", "subscribe", { topics: [WORKERS] });
    expect(refusal).toMatchObject({ status: "error", response: { error: { code: "forbidden_topic" } } });
  });

  test("with a raised claims version makes every position stale", async () => {
    await using raw = await joined(await server.token({ claims_version: 1 }));
    await raw.subscribe(RUNS);
    await raw.push("sync:v1", "auth", { token: await server.token({ claims_version: 2 }) });
    await raw.frame("stale_cursor", (frame) => frame.error?.code === "stale_cursor");
    expect(
      await server.metric("khala_sync_stale_cursors_total", { topic: RUNS, reason: "epoch" }),
    ).toBeGreaterThan(0);
  });
});

test.each(PHOENIX_CLIENTS)(
  "the npm client $version reconnects with a new token when its token expires",
  async (client) => {
    let connections = 0;
    let token = await server.token({ ttl_s: 60 });
    using socket = await openPhoenix(client, server.socketUrl, {
      params: () => ({ token }),
      rejoinAfterMs: () => 20,
    });
    const closes: number[] = [];
    socket.onOpen(() => connections++);
    socket.onClose(({ code }) => closes.push(code));
    const channel = socket.channel("sync:v1");
    socket.connect();
    await answerOf(channel.join());
    clock.jump(61_000);
    token = await server.token({ ttl_s: 60 });
    await until("a second connection", () => connections === 2 && channel.state === "joined");
    expect(closes[0]).toBe(4401);
  },
);

describe("a revoked token", () => {
  const revoke = (at: TestServer, jti: unknown, bearer: string) =>
    at.request("/api/sync/revoke", bearer, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ jti }),
    });

  test("closes its sockets on every server, and opens no other", async () => {
    await using other = await startServer(database.url, { clock });
    const [token, kept] = [await server.token(), await server.token()];
    await using here = await joined(token);
    await using there = await joined(token, other);
    await using bystander = await joined(kept);
    expect((await revoke(server, jtiOf(token), "the-key-of-the-issuer")).status).toBe(204);
    expect(await here.ended()).toEqual({ code: 4401, reason: "token_revoked" });
    // The other server has no wakeups, so that it hears of it with its next poll.
    clock.jump(10_000);
    expect(await there.ended()).toEqual({ code: 4401, reason: "token_revoked" });
    for (const each of [server, other]) {
      await expect(RawClient.connect(each.socketUrl, { token })).rejects.toMatchObject({
        status: 403,
        body: { error: { code: "token_revoked" } },
      });
      expect((await each.request(`/sync/v1/list/${RUNS}`, token)).status).toBe(401);
    }
    await bystander.push("phoenix", "heartbeat");
    expect(bystander.closed).toBeUndefined();
  });

  test("closes its sockets on other servers at once with wake-ups", async () => {
    const settings = { KHALA_WAKEUPS: "on", KHALA_AUTH_ISSUER_KEY: "the-key-of-the-issuer" };
    await using one = await startServer(database.url, { settings });
    await using two = await startServer(database.url, { settings });
    const listening =
      "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    await until("both listen", async () => (await database.database.query({ text: listening })).length === 2);
    const token = await one.token();
    await using there = await joined(token, two);
    await revoke(one, jtiOf(token), "the-key-of-the-issuer");
    // Long before the next poll, which is ten seconds after the last.
    const ended = await until("the end", () => there.closed, { on: there, deadlineMs: 8_000 });
    expect(ended).toEqual({ code: 4401, reason: "token_revoked" });
  });

  test("can be revoked only with the issuer key or the scope ops", async () => {
    const victim = jtiOf(await server.token());
    const code = async (bearer: string, jti: unknown = victim) => {
      const response = await revoke(server, jti, bearer);
      return response.status === 204
        ? 204
        : ((await response.json()) as { error: { code: string } }).error.code;
    };
    expect(await code(await server.token())).toBe("missing_scope");
    expect(await code("a-wrong-key-of-nobody")).toBe("invalid_token");
    expect((await server.request("/api/sync/revoke", undefined, { method: "POST" })).status).toBe(401);
    const ops = await server.token({ scopes: ["ops"] });
    for (const bad of [null, "", 7, "a\u0000b"]) expect(await code(ops, bad)).toBe("invalid_request");
    expect(await code(ops)).toBe(204);
  });
});

describe("the close of a socket", () => {
  test("is 1001 after a long silence, and any message prevents it", async () => {
    await using silent = await joined(await server.token({ ttl_s: 900 }));
    await using talking = await joined(await server.token({ ttl_s: 900 }));
    clock.jump(60_000);
    await talking.push("phoenix", "heartbeat");
    clock.jump(31_000);
    expect(await silent.ended()).toEqual({ code: 1001, reason: "idle_timeout" });
    await talking.push("phoenix", "heartbeat");
    expect(talking.closed).toBeUndefined();
  });

  test("is 1012 when the server shuts down, within the drain timeout", async () => {
    const leaving = await startServer(database.url, { settings: { KHALA_DRAIN_MS: "300" } });
    await using raw = await joined(await leaving.token(), leaving);
    await raw.subscribe(RUNS);
    await using deaf = await joined(await leaving.token(), leaving);
    deaf.ws.pause();
    await leaving[Symbol.asyncDispose]();
    expect(await raw.ended()).toEqual({ code: 1012, reason: "shutting_down" });
    expect(raw.frames.at(-1)).toMatchObject({ error: { code: "shutting_down" } });
    await expect(
      RawClient.connect(leaving.socketUrl, { token: await leaving.token() }),
    ).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });

  test("has a different delay for each socket when the server shuts down", async () => {
    const leaving = await startServer(database.url);
    const sockets: RawClient[] = [];
    for (let n = 0; n < 4; n++) sockets.push(await joined(await leaving.token(), leaving));
    for (const socket of sockets) await socket.subscribe(RUNS);
    await leaving[Symbol.asyncDispose]();
    const delays = sockets.map((socket) => {
      const { error } = socket.frames.at(-1) as unknown as { error: { retry_after_ms: string } };
      return Number(error.retry_after_ms);
    });
    expect(new Set(delays)).toEqual(new Set([0, 1, 2, 3]));
    for (const socket of sockets) await socket[Symbol.asyncDispose]();
  });
});
