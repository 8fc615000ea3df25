import { randomUUID } from "node:crypto";
import { Heard, makeTestArtifact, routeByTags, rules } from "@khala/test-support/conformance/board/support";
import { start, Worker } from "@khala/test-support/conformance/board/worker";
import { kafkaHere, ownKafka, startKafka } from "@khala/test-support/kafka/kafka";
import { readTopic, type TopicRecord, values } from "@khala/test-support/kafka/topics";
import { transactionState } from "@khala/test-support/kafka/transactions";
import { kafkaWireRefusingOffsets } from "@khala/test-support/kafka/wire";
import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { until } from "@khala/test-support/kit/until";
import { startWatchedBroker } from "@khala/test-support/steps/board_step_stage";
import { describe, expect, test } from "vitest";
import { openKafkaClient } from "../../packages/kafka/src/client/client.ts";
import { openClusterOffsets } from "../../packages/kafka/src/client/cluster_offsets.ts";
import { openBoard } from "../../packages/kafka/src/open_board.ts";
import { resolveSettings } from "../../packages/kafka/src/settings.ts";
import { artifact, openStage, type Stage, task } from "../../packages/kafka/src/test_support.ts";
import { topicNames } from "../../packages/kafka/src/topics/topics.ts";

const SLOW = { timeout: 150_000 };
const COORDINATOR_NOT_AVAILABLE = 15;
const EXPIRATION_MS = 20_000;
const to = (stage: Stage, ...texts: string[]) =>
  texts.map((value) => ({ topic: stage.names.artifacts, record: { key: "k", value } }));

describe.runIf(kafkaHere())("a transaction", () => {
  test("that its process abandons is ended by the brokers after at most 15 seconds", {
    timeout: 150_000,
  }, async () => {
    await using parts = new AsyncDisposableStack();
    const stage = parts.use(await openStage({ producers: 1, partitions: 1 }));
    const abandoned = Promise.withResolvers<void>();
    parts.defer(() => abandoned.resolve());
    const begun = Promise.withResolvers<void>();
    const hanging = stage.producers.transaction(async ({ send }) => {
      await send(to(stage, "never"));
      begun.resolve();
      await abandoned.promise;
    });
    hanging.catch(() => {});
    await begun.promise;
    const offsets = await openClusterOffsets(stage.context, stage.settings.kafka);
    parts.defer(() => offsets.stop());
    const ends = async () => {
      const { artifacts } = stage.names;
      const [high, stable] = await Promise.all(
        (["high", "stable"] as const).map(
          async (at) => (await offsets.list([artifacts], at)).get(artifacts)!,
        ),
      );
      return { high: Math.max(...high!.values()), stable: Math.max(...stable!.values()) };
    };
    const written = await until("its record is there", async () => {
      const { high, stable } = await ends();
      return high > 0 && { stable };
    });
    expect(written.stable).toBe(0);
    await stage.write(stage.names.artifacts, { key: "k", value: "behind" });
    // The time is the brokers', and it is what they were told.
    const { kafka, transactionalId } = stage.settings;
    const state = await transactionState(kafka, `${transactionalId}-0`);
    expect(state?.transactionTimeoutMs).toBeLessThanOrEqual(15_000);
    await until("readers get past it", async () => (await ends()).stable > 1, { deadlineMs: 60_000 });
    expect(values(await readTopic(stage.client, stage.names.artifacts, 1))).toEqual(["behind"]);
    abandoned.resolve();
    await expect(hanging).rejects.toMatchObject({ code: "unavailable" });
  });
});

describe.runIf(ownKafka() !== undefined)("a suspended broker", () => {
  test("repeats a commit that timed out, and it holds", { timeout: 240_000 }, async () => {
    await using broker = await startKafka();
    await using stage = await openStage({ kafka: { bootstrap: broker.bootstrap, clientId: "still" } });
    await stage.producers.transaction(({ send }) => send(to(stage, "first")));
    const paused = stage.producers.transaction(async ({ send }) => {
      await send(to(stage, "second"));
      await broker.pause();
      // The client gives a commit 5 s.
      setTimeout(() => void broker.resume(), 6_000);
    });
    await paused;
    expect(values(await readTopic(stage.client, stage.names.artifacts, 2))).toEqual(["first", "second"]);
  });

  test("without transactions, a write gets its outcome even if its producer is replaced meanwhile", {
    timeout: 240_000,
  }, async () => {
    await using broker = await startKafka();
    const kafka = { bootstrap: broker.bootstrap, clientId: "shared" };
    await using stage = await openStage({ kafka, transactions: false });
    const { transaction } = stage.producers;
    await transaction(({ send }) => send(to(stage, "first")));
    await broker.pause();
    const written = transaction(({ send }) => send(to(stage, "second")));
    const undelivered = Object.assign(new Error("Local: Message timed out"), { code: -192 });
    const failed = transaction(() => Promise.reject(undelivered));
    await expect(failed).rejects.toMatchObject({ code: "unavailable" });
    // Longer than a client takes to disconnect, and shorter than a record is kept.
    setTimeout(() => void broker.resume(), 8_000);
    await written;
    await transaction(({ send }) => send(to(stage, "third")));
    expect(values(await readTopic(stage.client, stage.names.artifacts, 3))).toEqual([
      "first",
      "second",
      "third",
    ]);
  });

  test("refuses writes as unavailable without brokers, and later ones succeed", {
    timeout: 240_000,
  }, async () => {
    await using broker = await startKafka({ mortal: true });
    await using stage = await openStage({ kafka: { bootstrap: broker.bootstrap, clientId: "gone" } });
    await stage.producers.transaction(({ send }) => send(to(stage, "first")));
    await broker.kill();
    const refused = stage.producers.transaction(({ send }) => send(to(stage, "lost")));
    await expect(refused).rejects.toMatchObject({
      code: expect.stringMatching(/^(unavailable|stale_producer)$/),
    });
    await broker.restart();
    await eventually("it writes again", () =>
      stage.producers
        .transaction(({ send }) => send(to(stage, "second")))
        .then(
          () => true,
          () => false,
        ),
    );
    expect(values(await readTopic(stage.client, stage.names.artifacts, 2))).toEqual(["first", "second"]);
  });
});

describe.runIf(ownKafka() !== undefined)("a board that has lost its brokers", () => {
  test("stops without brokers, with running work", { timeout: 120_000 }, async () => {
    await using broker = await startKafka();
    const context = await testContext();
    const prefix = `t${randomUUID().slice(0, 8)}.`;
    let ran = 0;
    const board = await openBoard(context, {
      agents: [{ agent: "reviewer", order: "key", strict: false }],
      route: (draft) => ({ tasks: [task({ artifacts: [draft] })], dead: [] }),
      observer: { published() {}, routed() {}, settled: () => void ran++, repeated() {} },
      kafka: { bootstrap: broker.bootstrap, clientId: prefix },
      prefix,
      partitions: 2,
      retryDelaysMs: [1_000],
      drainMs: 1_000,
    });
    const work = board.consume({
      agent: "reviewer",
      order: "key",
      strict: false,
      concurrency: 10,
      away: false,
      begun: () => true,
      async gate() {},
      async handle() {
        return { kind: "done", outputs: [] };
      },
    });
    await board.publish([artifact()]);
    await eventually("it works", () => ran > 0);
    await broker.kill();
    const late = board.publish([artifact()]).then(
      () => "published",
      () => "refused",
    );
    await work.stop();
    await board.stop();
    expect(await late).toBe("refused");
  });
});

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

describe.runIf(ownKafka() !== undefined)("offsets that the group refuses", () => {
  test("fail only their transaction, while there is no coordinator", SLOW, async () => {
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
  });

  test(
    "are abandoned where the client would wait for ever, and the next transaction succeeds",
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

describe.runIf(ownKafka() !== undefined)("a transactional id forgotten by the broker", () => {
  test("costs a publisher one retry at most; routing and settling recover without repetition", {
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
