import { Heard, makeTestArtifact, routeByTags, rules } from "@khala/test-support/conformance/board/support";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { kafkaBoard } from "@khala/test-support/kafka/kafka_board";
import { eventually } from "@khala/test-support/kit/eventually";
import { describe, expect, test } from "vitest";
import { openKafkaClient } from "../client/client.ts";
import { artifactRecord } from "../topics/records.ts";
import { topicNames } from "../topics/topics.ts";

describe.runIf(kafkaHere()).concurrent("the counts of a correlation", () => {
  test("count as open until every artifact is routed, also without a matching agent", async () => {
    await using under = await kafkaBoard();
    const parts = { agents: [rules("agent")], route: routeByTags, observer: new Heard() };
    const board = await under.open(parts, { routes: false });
    await board.publish([makeTestArtifact({ correlation_id: "c" })]);
    for (const _ of ["once", "again"])
      expect(await board.correlations([{ org: "acme", name: "c" }])).toMatchObject([
        { artifacts: 1, open: 1, done: 0 },
      ]);
    await under.open(parts);
    await eventually(
      "it is routed",
      async () => (await board.correlations([{ org: "acme", name: "c" }]))[0]?.open === 0,
    );
    await board.publish([makeTestArtifact({ to: "agent", correlation_id: "c" })]);
    await eventually("its task is there", async () => {
      const [counts] = await board.correlations([{ org: "acme", name: "c" }]);
      expect(counts?.open).toBe(1);
      return (await board.counts())[0]?.waiting === 1;
    });
    expect(await board.correlations([{ org: "acme", name: "c" }])).toMatchObject([
      { artifacts: 2, open: 1, done: 0 },
    ]);
  });

  test("count as open while a transaction with another artifact is undecided", async () => {
    await using under = await kafkaBoard();
    const parts = { agents: [rules("agent")], route: routeByTags, observer: new Heard() };
    const board = await under.open(parts);
    await board.publish([makeTestArtifact({ correlation_id: "c" })]);
    const open = async () => (await board.correlations([{ org: "acme", name: "c" }]))[0]?.open;
    await eventually("it is over", async () => (await open()) === 0);
    const client = await openKafkaClient({ bootstrap: under.bootstrap, clientId: "test" });
    const producer = client.producer({
      transactionalId: `${under.prefix}other`,
      transactionTimeoutMs: 60_000,
    });
    await producer.connect();
    await producer.transaction();
    const { artifacts } = topicNames({ prefix: under.prefix });
    const messages = [artifactRecord(makeTestArtifact({ correlation_id: "c" }))];
    await producer.send({ topic: artifacts, messages });
    expect(await open()).toBe(1);
    await producer.abort();
    await eventually("it is over again", async () => (await open()) === 0);
    await producer.disconnect();
  });
});
