import { randomUUID } from "node:crypto";
import { partitionOf } from "@khala/contracts";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { addPartitions, alterTopic, readTopic } from "@khala/test-support/kafka/topics";
import { describe, expect, test } from "vitest";
import { openStage } from "../test_support.ts";
import { openTopicConfigs } from "./topic_setup.ts";
import { delayText, topicNames } from "./topics.ts";

test("names topics after the prefix, unless a name is set", () => {
  const names = topicNames({ prefix: "flock.", topics: { byId: "elsewhere" } });
  expect([names.artifacts, names.byId, names.processed]).toEqual([
    "flock.artifacts",
    "elsewhere",
    "flock.processed",
  ]);
  expect(names.tasks("reviewer")).toBe("flock.tasks.reviewer");
  expect(names.deadLetters("router")).toBe("flock.dlq.router");
  expect(names.retry(60_000)).toBe("flock.retry.1m");
  expect([1_000, 1_500, 90_000, 7_200_000].map(delayText)).toEqual(["1s", "1500ms", "90s", "2h"]);
});

test("refuses invalid topic names", () => {
  expect(() => topicNames({ prefix: "my flock/" })).toThrow(/cannot be the name of a Kafka topic/);
  expect(() => topicNames({}).tasks("a b")).toThrow(/cannot be the name of an agent/);
});

describe.runIf(kafkaHere()).concurrent("on a broker", () => {
  test("creates topics with their configs, and accepts them at a second start", async () => {
    await using stage = await openStage();
    await stage.setUp();
    const { names, settings } = stage;
    const configs = await openTopicConfigs(settings.kafka);
    const topics = [names.artifacts, names.byId, names.processed, names.deadLetters("writer")];
    const found = await configs.describe(topics);
    expect(topics.map((topic) => found.get(topic)?.get("cleanup.policy"))).toEqual([
      "delete",
      "compact",
      expect.stringMatching(/^(compact,delete|delete,compact)$/),
      "delete",
    ]);
    await configs.close();
  });

  test("keeps processed entries at least as long as the records that could repeat them", async () => {
    await using stage = await openStage();
    const { names, settings } = stage;
    const configs = await openTopicConfigs(settings.kafka);
    const again = [names.artifacts, names.tasks("writer"), names.retry(settings.retryDelaysMs[0]!)];
    const found = await configs.describe([names.processed, ...again]);
    const kept = (topic: string) => Number(found.get(topic)!.get("retention.ms"));
    for (const topic of again) expect(kept(names.processed), topic).toBeGreaterThanOrEqual(kept(topic));
    await configs.close();
    await alterTopic(settings.kafka, names.processed, { "retention.ms": "3600000" });
    await expect(stage.setUp()).rejects.toThrow(
      `${names.processed} has retention.ms=3600000 but needs at least`,
    );
  });

  test("refuses a wrong config with the topic, the config, and the actual and expected values", async () => {
    await using stage = await openStage();
    const { kafka } = stage.settings;
    await alterTopic(kafka, stage.names.byId, { "cleanup.policy": "delete" });
    await alterTopic(kafka, stage.names.tasks("writer"), { "max.message.bytes": "1048588" });
    const refused = stage.setUp();
    await expect(refused).rejects.toMatchObject({ code: "invalid_request" });
    await expect(refused).rejects.toThrow(`${stage.names.byId} has cleanup.policy=delete but needs compact`);
    await expect(refused).rejects.toThrow(
      `${stage.names.tasks("writer")} has max.message.bytes=1048588 but needs at least`,
    );
  });

  test("accepts a longer retention and larger records", async () => {
    await using stage = await openStage();
    const { settings, names } = stage;
    await alterTopic(settings.kafka, names.artifacts, {
      "retention.ms": "-1",
      "max.message.bytes": "99999999",
    });
    await stage.setUp();
  });

  test("refuses another partition count than that of a live topic", async () => {
    await using stage = await openStage();
    await expect(stage.setUp({ partitions: 3 })).rejects.toThrow(
      `The topic ${stage.names.artifacts} has 2 partitions, but KAFKA_PARTITIONS is 3.`,
    );
  });

  test.each([true, false])(
    "keeps a key in its partition when partitions are added to a live topic, transactions %s",
    async (transactions) => {
      await using stage = await openStage({ transactions });
      const { names, settings } = stage;
      const keys = Array.from({ length: 20 }, (_, i) => `key ${i}`);
      const topic = names.artifacts;
      await addPartitions(settings.kafka, topic, 14);
      await stage.producers.transaction(async ({ send }) => {
        await send(keys.map((key) => ({ topic, record: { key, value: "{}" } })));
      });
      const records = await readTopic(stage.client, topic, keys.length);
      expect(Object.fromEntries(records.map(({ key, partition }) => [String(key), partition]))).toEqual(
        Object.fromEntries(keys.map((key) => [key, partitionOf(key, settings.partitions)])),
      );
      await expect(stage.setUp()).rejects.toThrow(
        `The topic ${topic} has 16 partitions, but KAFKA_PARTITIONS is 2.`,
      );
    },
  );

  test("two processes that start at the same time create the topics together", async () => {
    await using stage = await openStage();
    const prefix = `t${randomUUID().slice(0, 8)}.`;
    const starts = [openStage({ prefix }), openStage({ prefix }), stage.setUp()];
    const [one, two] = await Promise.all(starts);
    await one![Symbol.asyncDispose]();
    await two![Symbol.asyncDispose]();
  });
});
