import { Heard, makeTestArtifact, routeByTags, rules } from "@khala/testing/conformance/board/support";
import { start, Worker } from "@khala/testing/conformance/board/worker";
import { ownKafka, startKafka } from "@khala/testing/kafka/kafka";
import { readTopic, type TopicRecord } from "@khala/testing/kafka/topics";
import { transactionState } from "@khala/testing/kafka/transactions";
import { testContext } from "@khala/testing/kit/context";
import { eventually } from "@khala/testing/kit/eventually";
import { describe, expect, test } from "vitest";
import { openKafkaClient } from "../../packages/kafka/src/client/client.ts";
import { openBoard } from "../../packages/kafka/src/open_board.ts";
import { resolveSettings } from "../../packages/kafka/src/settings.ts";
import { topicNames } from "../../packages/kafka/src/topics/topics.ts";

const EXPIRATION_MS = 20_000;

describe.runIf(ownKafka() !== undefined)("a transactional id that the broker has forgotten", () => {
  test("costs whoever publishes one more try at most, routing and settling go on by themselves, and nothing is there twice", {
    timeout: 180_000,
  }, async () => {
    await using parts = new AsyncDisposableStack();
    const broker = parts.use(
      await startKafka({
        properties: {
          "transactional.id.expiration.ms": EXPIRATION_MS,
          "transaction.remove.expired.transaction.cleanup.interval.ms": 500,
        },
      }),
    );
    const heard = new Heard();
    const kafkaOf = (clientId: string) => ({ bootstrap: broker.bootstrap, clientId });
    const open = async (clientId: string, routes: boolean) => {
      const board = await openBoard(await testContext(), {
        agents: [rules("agent")],
        route: routeByTags,
        routes,
        observer: heard,
        kafka: kafkaOf(clientId),
        // One of each, so that records have an order.
        partitions: 1,
        producers: 1,
        retryDelaysMs: [1_000],
        sessionTimeoutMs: 30_000,
      });
      parts.defer(() => board.stop());
      return board;
    };
    const [publisher, runner] = [await open("publisher", false), await open("runner", true)];
    parts.use(start(new Worker("agent"), runner));

    const ids: string[] = [];
    const publish = async (tries: number) => {
      const artifact = makeTestArtifact({ to: "agent" });
      ids.push(artifact.id);
      const attempt = () => publisher.publish([artifact]);
      const refused = (error: unknown) => {
        expect(error).toMatchObject({ code: "unavailable", details: { retry_after_ms: expect.any(Number) } });
        return attempt();
      };
      expect(await (tries > 1 ? attempt().catch(refused) : attempt())).toEqual(["published"]);
      await eventually("it is settled", () => heard.settledBy("agent").length >= ids.length);
    };
    await publish(1);
    const known = () =>
      Promise.all(["publisher-0", "runner-0"].map((id) => transactionState(kafkaOf("onlooker"), id)));
    expect(await known()).not.toContain(undefined);
    await eventually("both are forgotten", async () => (await known()).every((state) => !state));
    await publish(2);
    await publish(1);

    expect(heard.settledBy("agent").map(({ task }) => task.id)).toEqual(ids);
    const client = await openKafkaClient(kafkaOf("onlooker"));
    const names = topicNames(resolveSettings({ kafka: kafkaOf("onlooker") }));
    for (const topic of [names.artifacts, names.tasks("agent"), names.processed]) {
      const idsOf = (records: readonly TopicRecord[]) =>
        records.map(({ value }) => ids.find((id) => String(value).includes(id)));
      const records = await readTopic(client, topic, (read) => idsOf(read).includes(ids.at(-1)));
      expect(idsOf(records)).toEqual(ids);
    }
  });
});
