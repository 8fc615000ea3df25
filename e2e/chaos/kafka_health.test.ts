import { agent } from "@khala/server";
import { ownKafka, startKafka } from "@khala/testing/kafka/kafka";
import { eventually } from "@khala/testing/kit/eventually";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { startServer, type TestServer } from "@khala/testing/servers/servers";
import { describe, expect, test } from "vitest";

interface Readiness {
  readonly status: string;
  readonly dependencies: Record<string, { readonly state: string; readonly message?: string }>;
}

async function readiness(server: TestServer): Promise<Readiness & { readonly code: number }> {
  const response = await server.request("/readyz");
  return { code: response.status, ...((await response.json()) as Readiness) };
}

const WELL = {
  code: 200,
  status: "ok",
  dependencies: { database: { state: "ok" }, blackboard: { state: "ok", engine: "kafka" } },
};
/** It stays in rotation: all but the blackboard is as well as before. */
const WITHOUT_BROKER = {
  code: 200,
  status: "degraded",
  dependencies: {
    database: { state: "ok" },
    delivery: { state: "ok" },
    blackboard: {
      state: "degraded",
      engine: "kafka",
      message: expect.stringContaining("Publishing and agents wait until Kafka answers."),
    },
  },
};

describe.runIf(ownKafka())("/readyz of a server whose blackboard is on Kafka", () => {
  test("is ok with a broker, degraded while it is gone, and ok when it is back", {
    timeout: 180_000,
  }, async () => {
    await using database = await testDatabase();
    await using broker = await startKafka({ mortal: true });
    await using server = await startServer(database.url, {
      agents: [agent("reader", { consumes: "Draft", async run() {} })],
      settings: { KAFKA_BOOTSTRAP_SERVERS: broker.bootstrap, KAFKA_PARTITIONS: "1" },
    });
    const well = () =>
      eventually("it is well", async () => {
        const now = await readiness(server);
        return now.status === "ok" && now;
      });
    expect(await well()).toMatchObject(WELL);
    await broker.kill();
    expect(await readiness(server)).toMatchObject(WITHOUT_BROKER);
    await broker.restart();
    expect(await well()).toMatchObject(WELL);
  });
});
