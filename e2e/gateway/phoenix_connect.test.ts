import { RawClient, Refused, until } from "@khala/test-support/clients/clients";
import { answerOf, openPhoenix, PHOENIX_CLIENTS } from "@khala/test-support/clients/phoenix";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { settings: { KHALA_ORIGINS: "https://app.example" } });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

describe.each(PHOENIX_CLIENTS)("the npm client $version", (client) => {
  test("connects with the token as a param", async () => {
    using socket = await openPhoenix(client, server.socketUrl, { params: { token: await server.token() } });
    socket.connect();
    expect(await answerOf(socket.channel("sync:v1").join())).toEqual({ status: "ok", response: {} });
  });

  test("connects with a param function, which is called for every connection", async () => {
    const tokens = [await server.token(), await server.token()];
    const given: string[] = [];
    const params = () => {
      given.push(tokens[given.length % 2]!);
      return { token: given.at(-1) };
    };
    using socket = await openPhoenix(client, server.socketUrl, { params });
    socket.connect();
    await until("the first connection", () => socket.isConnected());
    socket.conn!.terminate();
    await until("the second connection", () => given.length === 2 && socket.isConnected());
    expect(given).toEqual(tokens);
  });

  test("connects with authToken, and the subprotocol phoenix is echoed", async () => {
    const options = { authToken: await server.token() };
    using socket = await openPhoenix(client, server.socketUrl, options);
    socket.connect();
    expect(await answerOf(socket.channel("sync:v1").join())).toMatchObject({ status: "ok" });
    expect(socket.conn!.protocol).toBe("phoenix");
  });

  test("is refused with an invalid token, and connects with a valid one", async () => {
    let token = "not.a.token";
    const refusals: unknown[] = [];
    using socket = await openPhoenix(client, server.socketUrl, { params: () => ({ token }) });
    socket.onError((error) => refusals.push(error));
    socket.connect();
    await until("two refusals", () => refusals.length >= 2);
    token = await server.token();
    await until("a connection", () => socket.isConnected());
  });
});

test.each(PHOENIX_CLIENTS.filter(({ version }) => version !== "1.8.5"))(
  "the npm client $version connects with an authToken function, which is called for every connection",
  async (client) => {
    const given: string[] = [];
    const fresh = await Promise.all([server.token(), server.token()]);
    const authToken = () => {
      given.push(fresh[given.length % 2]!);
      return given.at(-1);
    };
    using socket = await openPhoenix(client, server.socketUrl, { authToken });
    socket.connect();
    await until("the first connection", () => socket.isConnected());
    socket.conn!.terminate();
    await until("the second connection", () => given.length === 2 && socket.isConnected());
  },
);

describe("a handshake is refused with 403 and a code", () => {
  const refusal = async (options: Parameters<typeof RawClient.connect>[1]) => {
    const outcome = await RawClient.connect(server.socketUrl, options).catch((error: unknown) => error);
    if (!(outcome instanceof Refused)) throw new Error("The handshake was not refused.", { cause: outcome });
    return { status: outcome.status, code: outcome.body.error?.code };
  };

  test("without a token", async () => {
    expect(await refusal({})).toEqual({ status: 403, code: "missing_authorization" });
  });

  test("with an invalid token", async () => {
    expect(await refusal({ token: "not.a.token" })).toEqual({ status: 403, code: "invalid_token" });
    const [header, claims] = (await server.token()).split(".");
    expect(await refusal({ token: `${header}.${claims}.AAAA` })).toEqual({
      status: 403,
      code: "invalid_token",
    });
  });

  test("with an invalid token as a subprotocol, whatever the param is", async () => {
    const bad = `base64url.bearer.phx.${Buffer.from("not.a.token").toString("base64url")}`;
    const options = { token: await server.token(), protocols: ["phoenix", bad] };
    expect(await refusal(options)).toEqual({ status: 403, code: "invalid_token" });
  });

  test("with another version of the protocol, or none", async () => {
    const token = await server.token();
    const expected = { status: 403, code: "unsupported_protocol_version" };
    expect(await refusal({ query: `token=${token}&vsn=1.0.0` })).toEqual(expected);
    expect(await refusal({ query: `token=${token}&vsn=3.0.0` })).toEqual(expected);
    expect(await refusal({ query: `token=${token}` })).toEqual(expected);
  });

  test("from a foreign origin, while allowed ones and the server's own connect", async () => {
    const token = await server.token();
    const from = (origin: string) => ({ token, headers: { origin } });
    expect(await refusal(from("https://evil.example"))).toEqual({ status: 403, code: "origin_not_allowed" });
    await using allowed = await RawClient.connect(server.socketUrl, from("https://app.example"));
    await using own = await RawClient.connect(server.socketUrl, from(server.url));
    expect([(await allowed.join()).status, (await own.join()).status]).toEqual(["ok", "ok"]);
  });

  test("and counted by its code", async () => {
    const code = "missing_authorization";
    const before = await server.metric("khala_gateway_denials_total", { code });
    await refusal({});
    expect(await server.metric("khala_gateway_denials_total", { code })).toBe(before + 1);
  });
});

test("answers a plain GET of the socket's path with 426", async () => {
  const response = await server.request("/socket/websocket?vsn=2.0.0");
  expect(response.status).toBe(426);
  expect(await response.json()).toMatchObject({ error: { code: "upgrade_required" } });
});
