import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { LONG_POLL_MS, serveStreams } from "@khala/testing/servers/durable_streams";
import { beforeAll, beforeEach, describe } from "vitest";

const config = { baseUrl: "", longPollTimeoutMs: LONG_POLL_MS };
beforeAll(async () => {
  const shared = await testDatabase({ poolSize: 8 });
  const server = await serveStreams(shared.database);
  config.baseUrl = server.url;
  return async () => {
    await server[Symbol.asyncDispose]();
    await shared[Symbol.asyncDispose]();
  };
});

// Here, because its streams live for a second of real time, which a stalled machine spends between two requests.
describe("the durable-streams conformance suite", () => {
  beforeEach(({ task, skip }) => {
    if (task.suite?.name !== "TTL Expiration Behavior") skip("runs in e2e/gateway");
  });
  runConformanceTests(config);
});
