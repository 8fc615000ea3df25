import { request as httpRequest } from "node:http";
import { createConnection } from "node:net";
import { text } from "node:stream/consumers";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const ISSUER_KEY = "the-key-of-the-issuer";
let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, {
    settings: { KHALA_MAX_BODY_BYTES: "2048", KHALA_AUTH_ISSUER_KEY: ISSUER_KEY },
  });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

interface Answered {
  readonly status: number;
  readonly error?: { readonly code: string; readonly message: string; readonly field?: string };
}

async function post(
  path: string,
  body: unknown,
  { at = server, token = "", headers = {} } = {},
): Promise<Answered & Record<string, unknown>> {
  const response = await at.request(path, token || undefined, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  return { status: response.status, ...((await response.json()) as object) };
}

/** A request with headers that fetch does not let a program set. */
function postAs(host: string, at: TestServer, headers: Record<string, string> = {}): Promise<number> {
  const { hostname, port } = new URL(at.url);
  return new Promise((resolve, reject) => {
    const options = {
      hostname,
      port,
      path: "/api/sync/token",
      method: "POST",
      headers: { "content-type": "application/json", host, ...headers },
    };
    httpRequest(options, (response) => resolve(response.resume().statusCode!))
      .on("error", reject)
      .end(JSON.stringify({ sub: "s", org_id: "o", scopes: [] }));
  });
}

test("caches store no answer of a route, and no error: it is for the caller, now", async () => {
  const token = await server.token({ scopes: ["ops", "platform"] });
  for (const [method, path, status] of [
    ["GET", "/ops/v1/app", 200],
    ["GET", "/ops/v1/traces/none", 404],
    ["POST", "/blackboard/v1/agents/nobody/pause", 404],
    ["GET", "/ops/v1/app?unknown=1", 400],
    ["GET", "/chat", 403],
  ] as const) {
    const response = await server.request(path, token, { method });
    expect([path, response.status, response.headers.get("cache-control")]).toEqual([
      path,
      status,
      "no-store",
    ]);
  }
});

describe("POST /api/sync/token", () => {
  const wish = { sub: "user-1", org_id: "org-1", scopes: [RUNS], ttl_s: 120 };

  test("in development it is open on this machine, and its token is valid", async () => {
    const { status, token, expires_at, kid } = await post("/api/sync/token", wish);
    expect({ status, kid }).toEqual({ status: 200, kid: "test" });
    expect(Math.abs(Date.parse(String(expires_at)) - Date.now() - 120_000)).toBeLessThan(30_000);
    expect((await server.request(`/sync/v1/list/${RUNS}`, String(token))).status).toBe(200);
  });

  test("in development it is closed to foreign pages, and to foreign names that resolve to this machine", async () => {
    expect(await postAs(new URL(server.url).host, server)).toBe(200);
    expect(await postAs("evil.example", server)).toBe(401);
    expect(await postAs(new URL(server.url).host, server, { origin: "https://evil.example" })).toBe(401);
  });

  test("in production it needs the issuer key", async () => {
    await using production = await startServer(database.url, {
      dev: false,
      settings: { KHALA_AUTH_ISSUER_KEY: ISSUER_KEY },
    });
    const ask = (token: string) => post("/api/sync/token", wish, { at: production, token });
    expect(await post("/api/sync/token", wish, { at: production })).toMatchObject({
      status: 401,
      error: { code: "missing_authorization" },
    });
    expect(await ask("another-key-of-the-issuer")).toMatchObject({
      status: 401,
      error: { code: "invalid_token" },
    });
    expect(await ask(await production.token({ scopes: ["ops"] }))).toMatchObject({
      status: 401,
      error: { code: "invalid_token" },
    });
    expect(await ask(ISSUER_KEY)).toMatchObject({ status: 200, token: expect.any(String) });
  });

  test.each([
    ["sub", { ...wish, sub: "" }],
    ["org_id", { ...wish, org_id: 7 }],
    ["scopes", { ...wish, scopes: "all" }],
    ["scopes", { ...wish, scopes: ["two words"] }],
    ["ttl_s", { ...wish, ttl_s: 1 }],
    ["ttl_s", { ...wish, ttl_s: 901 }],
    ["admin", { ...wish, admin: true }],
  ])("names the field %s when it is wrong", async (field, body) => {
    expect(await post("/api/sync/token", body)).toMatchObject({
      status: 400,
      error: { code: "invalid_request", field },
    });
  });
});

describe("every error has the same shape", () => {
  test("a body over the limit is 413", async () => {
    const answer = await post("/api/sync/token", { sub: "x".repeat(3_000) });
    expect(answer).toMatchObject({
      status: 413,
      error: { code: "payload_too_large", message: expect.stringContaining("2048") },
    });
  });

  test("a body that is not JSON, or has another content type, is 400", async () => {
    for (const body of ["{", "", "null", "[]", '"text"'])
      expect(await post("/api/sync/token", body)).toMatchObject({
        status: 400,
        error: { code: "invalid_request" },
      });
    const headers = { "content-type": "text/plain" };
    expect(await post("/api/sync/token", "{}", { headers })).toMatchObject({
      status: 400,
      error: { field: "content-type" },
    });
  });

  test("names a wrong field of an append", async () => {
    const token = await server.token();
    const append = (body: unknown) => post("/runtime/v1/runs/r1/events", body, { token });
    expect(await append({ events: "all" })).toMatchObject({ status: 400, error: { field: "events" } });
    expect(await append({ expected_seq: "many", events: [] })).toMatchObject({
      status: 400,
      error: { field: "expected_seq" },
    });
    expect(await append({ evnets: [] })).toMatchObject({ status: 400, error: { field: "evnets" } });
    expect(await append({ events: [] })).toMatchObject({ status: 400, error: { field: "events" } });
    for (const [field, data] of [
      ["events[0].data", "x"],
      ["events[0].data", []],
      ["events[0].data.name", {}],
      ["events[0].data.name", { name: null }],
      ["events[0].data", { name: 1 }],
      ["events[0].data", { name: "a", nmae: "b" }],
    ])
      expect(await append({ events: [{ event_id: "1", type: "run.step", data }] })).toMatchObject({
        status: 400,
        error: { code: "invalid_request", field },
      });
    expect(await append({ events: ["x"] })).toMatchObject({ status: 400, error: { field: "events[0]" } });
    expect(
      await append({ expected_seq: "-1", events: [{ event_id: "1", type: "run.started" }] }),
    ).toMatchObject({ status: 400, error: { code: "invalid_request", field: "expected_seq" } });
    expect(await append({ events: [{ event_id: "1", type: "no.such" }] })).toMatchObject({
      status: 400,
      error: { code: "unknown_event_type" },
    });
  });

  test("every route refuses a parameter that it does not have, with its name", async () => {
    const scopes = [RUNS, "runtime:service", "chat", "blackboard:read", "blackboard:write"];
    scopes.push("blackboard:work:*", "ops", "platform", "runtime.worker_summaries", "runtime.notifications");
    const token = await server.token({ scopes });
    const refused: string[] = [];
    // The rules of durable streams are those of their protocol.
    const ours = server.khala.gateway.routes.filter(
      ({ path, action }) =>
        (action !== undefined || path === "/ops/v1/about") && !path.startsWith("/streams"),
    );
    for (const { method, path, action } of ours) {
      const asked = path.replace(":collection", RUNS).replace(/:\w+/g, "x");
      const response = await server.request(
        `${asked}?colour=red`,
        action === "token.mint" ? ISSUER_KEY : token,
        { method, headers: { origin: server.url } },
      );
      const { error } = method === "HEAD" ? {} : ((await response.json()) as Answered);
      expect([method, path, response.status]).toEqual([method, path, 400]);
      if (method !== "HEAD") expect(error).toMatchObject({ code: "invalid_request", field: "colour" });
      refused.push(path);
    }
    expect(refused.length).toBeGreaterThan(70);
  });

  test("takes the parameters that /openapi.json describes", async () => {
    const described = (await (await server.request("/openapi.json")).json()) as {
      paths: Record<string, { get?: { parameters: { name: string; in: string }[] } }>;
    };
    const scopes = [RUNS, "runtime:service", "chat", "blackboard:read", "ops", "platform"];
    const token = await server.token({ scopes });
    for (const [path, { get }] of Object.entries(described.paths)) {
      const names = (get?.parameters ?? []).filter((each) => each.in === "query").map(({ name }) => name);
      if (names.length === 0 || path.startsWith("/streams")) continue;
      const asked = path.replace("{collection}", RUNS).replace(/\{\w+\}/g, "x");
      const response = await server.request(`${asked}?${names.map((name) => `${name}=1`).join("&")}`, token);
      expect(await response.text(), path).not.toContain("There is no parameter");
    }
  });

  test("headers over the limit are 413, with the limit", async () => {
    const answer = await new Promise<string>((resolve, reject) => {
      const { hostname, port } = new URL(server.url);
      const socket = createConnection({ host: hostname, port: Number(port) });
      text(socket).then(resolve, reject);
      socket.write(`GET /healthz HTTP/1.1\r\nHost: x\r\nx: ${"a".repeat(20_000)}\r\n\r\n`);
    });
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
    expect(answer).toContain(
      '{"error":{"code":"payload_too_large","message":"The headers of a request may have at most',
    );
  });

  test("an unknown route is 404", async () => {
    for (const path of ["/nowhere", "/sync/v1/doc", `/sync/v1/doc/${"x".repeat(2_000)}`, "/socket"]) {
      const response = await server.request(path, await server.token());
      expect([path.length, response.status, await response.json()]).toMatchObject([
        path.length,
        404,
        { error: { code: "not_found" } },
      ]);
    }
    expect((await server.request("/healthz", undefined, { method: "DELETE" })).status).toBe(404);
  });

  test("an invalid URL or request is 400", async () => {
    const bad = await server.request("/sync/v1/doc/%zz", await server.token());
    expect([bad.status, await bad.json()]).toMatchObject([400, { error: { code: "invalid_request" } }]);
    const socket = createConnection(Number(new URL(server.url).port), "127.0.0.1");
    socket.write("THIS IS NOT HTTP\r\n\r\n");
    const answer = await text(socket);
    expect(answer).toMatch(/^HTTP\/1.1 400 /);
    expect(JSON.parse(answer.split("\r\n\r\n")[1]!)).toMatchObject({ error: { code: "invalid_request" } });
  });

  test("a request without a token is 401 with WWW-Authenticate, whether or not the resource exists", async () => {
    const response = await server.request(`/sync/v1/list/${RUNS}`);
    expect(response.headers.get("www-authenticate")).toBe("Bearer");
    expect([response.status, await response.json()]).toMatchObject([
      401,
      { error: { code: "missing_authorization" } },
    ]);
  });

  test("keys that the database cannot store are not found, or refused by name", async () => {
    const token = await server.token();
    expect((await server.request("/sync/v1/doc/run:%00", token)).status).toBe(404);
    const response = await server.request(`/sync/v1/list/${RUNS}?after=AAAA`, token);
    expect([response.status, await response.json()]).toMatchObject([400, { error: { field: "after" } }]);
  });
});

test("CORS allows only pages of allowed origins", async () => {
  const preflight = (origin: string) =>
    server.request("/api/sync/token", undefined, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-method": "POST" },
    });
  expect((await preflight(server.url)).headers.get("access-control-allow-origin")).toBe(server.url);
  expect((await preflight("https://evil.example")).headers.get("access-control-allow-origin")).toBeNull();
  const bundler = "http://localhost:5173";
  expect((await preflight(bundler)).headers.get("access-control-allow-origin")).toBe(bundler);
});

test("KHALA_ORIGINS=* lets no page mint tokens, and about shows so", async () => {
  await using open = await startServer(database.url, { settings: { KHALA_ORIGINS: "*" } });
  for (const headers of [
    { origin: "https://evil.example" },
    { origin: "http://localhost:5173" },
    { "x-forwarded-for": "203.0.113.7" },
  ] as Record<string, string>[]) {
    const minted = await open.request("/api/sync/token", undefined, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify({ sub: "eve", org_id: "demo", scopes: ["ops"] }),
    });
    expect(minted.status).toBe(401);
    const about = await open.request("/ops/v1/about", undefined, { headers });
    expect(await about.json()).toMatchObject({ mints: false, scopes: [] });
  }
});
