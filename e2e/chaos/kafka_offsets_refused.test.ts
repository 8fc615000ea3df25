import { ownKafka, startKafka } from "@khala/testing/kafka/kafka";
import { readTopic, values } from "@khala/testing/kafka/topics";
import { kafkaWireRefusingOffsets } from "@khala/testing/kafka/wire";
import { startWatchedBroker } from "@khala/testing/steps/board_step_stage";
import { describe, expect, test } from "vitest";
import { openStage, type Stage } from "../../packages/kafka/src/test_support.ts";

const SLOW = { timeout: 150_000 };
const COORDINATOR_NOT_AVAILABLE = 15;

const to = ({ names }: Stage, value: string) => [{ topic: names.artifacts, record: { key: "k", value } }];

function openAt(bootstrap: string): Promise<Stage> {
  return openStage({ kafka: { bootstrap, clientId: "offsets" }, producers: 1 });
}

/** A transaction with a record and an offset of a group. */
async function settle(stage: Stage, text: string): Promise<void> {
  const { artifacts, routerGroup } = stage.names;
  const consumer = stage.client.consumer({ groupId: routerGroup });
  await consumer.connect();
  try {
    await stage.producers.transaction(async ({ send, sendOffsets }) => {
      await send(to(stage, text));
      await sendOffsets(consumer, [{ topic: artifacts, partitions: [{ partition: 0, offset: "1" }] }]);
    });
  } finally {
    await consumer.disconnect();
  }
}

describe.runIf(ownKafka() !== undefined)("offsets that a group does not take", () => {
  test(
    "fail their transaction and nothing else, if there is no coordinator for as long as they are sent",
    SLOW,
    async () => {
      let error: number | undefined = COORDINATOR_NOT_AVAILABLE;
      await using broker = await startWatchedBroker(() => kafkaWireRefusingOffsets(() => error));
      await using stage = await openAt(broker.bootstrap);
      await expect(settle(stage, "never")).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringContaining("(15)"),
      });
      error = undefined;
      await settle(stage, "after");
      expect(values(await readTopic(stage.client, stage.names.artifacts, 1))).toEqual(["after"]);
    },
  );

  test(
    "are given up where the client would wait for ever, and the next transaction goes on",
    SLOW,
    async () => {
      // More copies than there are brokers: the topic without which nobody coordinates groups is never created.
      await using broker = await startKafka({ properties: { "offsets.topic.replication.factor": 3 } });
      await using stage = await openAt(broker.bootstrap);
      await expect(settle(stage, "never")).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringContaining("got no answer"),
      });
      await stage.producers.transaction(({ send }) => send(to(stage, "after")));
    },
  );
});
