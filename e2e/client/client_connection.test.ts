import { createSyncClient, type SyncClient, type SyncClientOptions } from "@khala/client/sync";
import { KhalaError } from "@khala/contracts";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { browserEnvironment } from "../../packages/client/src/browser_environment.ts";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { settings: { KHALA_AUTH_MIN_TTL_S: "1" } });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const open: SyncClient[] = [];
afterEach(async () => {
  for (const client of open.splice(0)) await client.close();
});

/** A client that follows a topic, and counts its sockets. */
function client(options: Partial<SyncClientOptions>) {
  const environment = browserEnvironment();
  let sockets = 0;
  const khala = createSyncClient({
    url: server.url,
    token: () => server.token(),
    environment: {
      ...environment,
      openSocket(url, protocols) {
        sockets++;
        return environment.openSocket(url, protocols);
      },
    },
    ...options,
  });
  open.push(khala);
  khala.sync.subscribe(RUNS, () => {});
  return { khala, sockets: () => sockets, state: () => khala.connection.status().state };
}

test("two refused tokens in a row park it with the reason; a valid one brings it back", async () => {
  let asked = 0;
  let good = false;
  const { khala, state, sockets } = client({
    token: async () => {
      asked++;
      const token = await server.token();
      return good ? token : `${token.slice(0, -4)}AAAA`;
    },
  });
  await until("it parks", () => state() === "unauthorised");
  expect(khala.connection.status()).toMatchObject({
    state: "unauthorised",
    error: { code: "invalid_token" },
  });
  expect(khala.connection.status()).not.toHaveProperty("retryAt");
  expect(khala.sync.list(RUNS)).toMatchObject({ phase: "forbidden", error: { code: "invalid_token" } });
  const before = { asked, sockets: sockets() };
  expect(before.sockets).toBe(2);
  good = true;
  khala.connection.connect();
  await until("it is live", () => state() === "live");
  expect(sockets()).toBe(3);
  expect(asked).toBe(before.asked + 1);
});

test("replaces a token on the open socket before it expires", async () => {
  let asked = 0;
  const { state, sockets } = client({
    token: () => {
      asked++;
      return server.token({ ttl_s: 6 });
    },
  });
  await until("it is live", () => state() === "live");
  // Each is replaced when half of its time is over: by the fourth, the first is expired.
  await until("four tokens", () => asked >= 4, { deadlineMs: 60_000 });
  expect(state()).toBe("live");
  expect(sockets()).toBe(1);
});

test("a new token with more scopes opens forbidden topics, on the same socket", async () => {
  let scopes: string[] = ["runtime:write"];
  let asked = 0;
  const { khala, sockets } = client({
    token: () => {
      asked++;
      return server.token({ ttl_s: 6, scopes });
    },
  });
  await until("it is forbidden", () => khala.sync.list(RUNS).phase === "forbidden");
  scopes = [RUNS];
  await until("it is allowed", () => khala.sync.list(RUNS).phase === "live", { deadlineMs: 30_000 });
  expect(asked).toBeGreaterThan(1);
  expect(sockets()).toBe(1);
});

test("reports that a fixed token expired", async () => {
  const { khala, state } = client({ token: await server.token({ ttl_s: 1 }) });
  await until("it parks", () => state() === "unauthorised", { deadlineMs: 30_000 });
  expect(khala.connection.status()).toMatchObject({ error: { code: "token_expired" } });
});

test("waits for a server that is not up", async () => {
  const { port } = new URL(server.url);
  await using proxy = await startTcpProxy({ host: "127.0.0.1", port: Number(port) });
  proxy.refuse();
  const { khala, state } = client({ url: proxy.through(server.url) });
  await until("it has tried", () => khala.connection.status().attempt >= 2);
  expect(khala.connection.status()).toMatchObject({ state: "connecting", error: { code: "unavailable" } });
  expect(khala.sync.list(RUNS)).toMatchObject({ phase: "offline", error: { code: "unavailable" } });
  proxy.resume();
  await until("it is live", () => state() === "live");
});

test("holds no socket while paused, and continues when resumed", async () => {
  const { khala, state, sockets } = client({});
  await until("it is live", () => state() === "live");
  khala.connection.pause();
  await until("the server sees it go", async () => (await server.metric("khala_gateway_sockets")) === 0);
  expect(khala.sync.list(RUNS).phase).toBe("offline");
  await server.write({ key: "run:paused", version: 1, org: "org-1", payload: {} });
  khala.connection.connect();
  await until("the document", () => khala.sync.get(RUNS, "run:paused").version === "1");
  expect(sockets()).toBe(2);
});

test("requests a token again after a failure, and is offline meanwhile", async () => {
  let asked = 0;
  const { khala, state } = client({
    token: () => (++asked < 3 ? Promise.reject(new Error("no network")) : server.token()),
  });
  await until("it says that it is offline", () => khala.sync.list(RUNS).phase === "offline");
  await until("it is live", () => state() === "live" && khala.sync.list(RUNS).phase === "live");
});

test("a signed-out user gets an error, and nothing is retried until connect", async () => {
  let signedIn = false;
  const { khala, state, sockets } = client({
    token: () =>
      signedIn ? server.token() : Promise.reject(new KhalaError("missing_authorization", "Sign in first.")),
  });
  await until("it parks", () => state() === "unauthorised");
  expect(khala.sync.list(RUNS)).toMatchObject({
    phase: "forbidden",
    error: { code: "missing_authorization" },
  });
  expect(sockets()).toBe(0);
  signedIn = true;
  khala.connection.connect();
  await until("it is live", () => khala.sync.list(RUNS).phase === "live");
});
