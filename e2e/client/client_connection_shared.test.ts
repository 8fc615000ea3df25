import { createClient } from "@khala/client";
import { KhalaError } from "@khala/contracts";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { browserEnvironment } from "../../packages/client/src/browser_environment.ts";
import type { LocksLike } from "../../packages/client/src/environment.ts";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

/** Locks of a tab that is alone. */
const locks: LocksLike = { request: (_name, _options, hold) => hold() };

test("a client with shared tabs parks when nobody is signed in, and connect revives it", async () => {
  let signedIn = false;
  const khala = createClient({
    url: server.url,
    shareTabs: true,
    environment: {
      ...browserEnvironment(),
      locks,
      openBroadcast: () => ({ onmessage: null, postMessage: () => {}, close: () => {} }),
    },
    token: () =>
      signedIn ? server.token() : Promise.reject(new KhalaError("missing_authorization", "Sign in first.")),
  });
  try {
    khala.sync.subscribe(RUNS, () => {});
    await until("it parks", () => khala.connection.status().state === "unauthorised");
    expect(khala.sync.list(RUNS).phase).toBe("forbidden");
    signedIn = true;
    khala.connection.connect();
    await until("it is live", () => khala.sync.list(RUNS).phase === "live");
    expect(khala.connection.status()).toMatchObject({ state: "live", role: "leader" });
  } finally {
    await khala.close();
  }
});
