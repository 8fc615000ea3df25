import { agent } from "@khala/server";
import { ownKafka, startKafka } from "@khala/test-support/kafka/kafka";
import { eventually } from "@khala/test-support/kit/eventually";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
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
  dependencies: { database: { state: "ok" }, blackboard: { state: "ok", backend: "kafka" } },
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
      backend: "kafka",
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
    const publish = async () => {
      const draft = JSON.stringify({ type: "Draft", payload: 1 });
      const token = await server.token({ scopes: ["blackboard:write"] });
      const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
      const path = `${server.url}/blackboard/v1/artifacts`;
      const response = await fetch(path, { method: "POST", headers, body: draft });
      return { code: response.status, body: (await response.json()) as { error: { message: string } } };
    };
    const refused = await eventually("publishing is refused without a try", async () => {
      const answer = await publish();
      // One that began before the loss was known does not wait for the timeouts of the client.
      expect(answer).toMatchObject({ code: 503, body: { error: { code: "unavailable" } } });
      expect(answer.body.error.message).toMatch(/^Kafka's brokers do not answer/);
      return answer.body.error.message.includes("nothing was published") && answer.body;
    });
    expect(refused).toEqual({
      error: {
        code: "unavailable",
        message: "Kafka's brokers do not answer, so nothing was published. Try again.",
        retry_after_ms: 1_000,
      },
    });
    await broker.restart();
    expect(await well()).toMatchObject(WELL);
    const again = () => eventually("publishing works again", async () => (await publish()).code === 201);
    await again();

    // One that stands still takes the connection, and says nothing.
    await broker.pause();
    expect(await publish()).toMatchObject({
      code: 503,
      body: {
        error: { code: "unavailable", message: expect.stringMatching(/^Kafka's brokers do not answer/) },
      },
    });
    await broker.resume();
    await again();
  });
});
