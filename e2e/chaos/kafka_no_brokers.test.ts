import {
  Heard,
  makeTestArtifact,
  range,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { start, Worker } from "@khala/test-support/conformance/board/worker";
import { ownKafka } from "@khala/test-support/kafka/kafka";
import { newTopic } from "@khala/test-support/kafka/topics";
import { kafkaWireWithoutBrokers } from "@khala/test-support/kafka/wire";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { startWatchedBroker, type WatchedBroker } from "@khala/test-support/steps/board_step_stage";
import { afterAll, beforeAll, describe, test } from "vitest";
import { type BrokerWatch, openBrokerWatch } from "../../packages/kafka/src/client/broker_watch.ts";
import { openKafkaClient } from "../../packages/kafka/src/client/client.ts";
import { openClusterOffsets } from "../../packages/kafka/src/client/cluster_offsets.ts";
import { joinGroup } from "../../packages/kafka/src/client/group.ts";
import { OpenCalls } from "../../packages/kafka/src/client/open_calls.ts";
import { openBoard } from "../../packages/kafka/src/open_board.ts";
import { openLogReader } from "../../packages/kafka/src/topics/log_reader.ts";
import { LogTail } from "../../packages/kafka/src/topics/log_tail.ts";

const LONG = { deadlineMs: 240_000 };
/** Of some twenty clients that a board has. */
const TOLD = 12;
/** Readers of each kind. */
const EACH = 6;

/** Whether a client finds no broker: one that was cut off finds it again within seconds. */
function seesNothing(native: Parameters<BrokerWatch["add"]>[0]): Promise<boolean> {
  return new Promise((resolve) => {
    native.getMetadata({ allTopics: false, timeout: 4_000 }, (error) => resolve(error !== null));
  });
}

describe.runIf(ownKafka())("a broker that reports no brokers for a moment", () => {
  let isAlone = false;
  let told = 0;
  let broker: WatchedBroker;
  beforeAll(async () => {
    broker = await startWatchedBroker(() =>
      kafkaWireWithoutBrokers(() => {
        if (isAlone) told++;
        return isAlone;
      }),
    );
  });
  afterAll(() => broker[Symbol.asyncDispose]());

  test("a client that forgets its brokers is noticed: plain readers recover, group members restart", {
    timeout: 900_000,
  }, async () => {
    const context = await testContext({ onWarning() {} });
    const settings = { bootstrap: broker.bootstrap, clientId: "readers" };
    const client = await openKafkaClient(settings);
    const topic = await newTopic(client);
    const offsets = await openClusterOffsets(context, settings);
    const watch = await openBrokerWatch(context, settings);
    const looks = new Set<() => Promise<boolean>>();
    const recorded: BrokerWatch = {
      ...watch,
      add(native) {
        const sight = watch.add(native);
        // It must not be closed while it is asked.
        const calls = new OpenCalls();
        const look = () => calls.run(() => seesNothing(native));
        looks.add(look);
        return {
          check: () => sight.check(),
          async end() {
            looks.delete(look);
            await Promise.all([sight.end(), calls.close()]);
          },
        };
      },
    };
    const kafka = { ...settings, watch: recorded };
    let read = 0;
    const onRecord = () => void read++;
    const from = [{ topic, partition: 0, offset: 0 }];
    const open = () => openLogReader(context, kafka, "readers");
    const tails = await Promise.all(
      range(1, EACH).map(() => LogTail.open(context, open, [{ topic, from, onRecord }])),
    );
    const membership = { kafka, offsets, readCommitted: true, sessionTimeoutMs: 6_000, heartbeatMs: 1_000 };
    /** Those that have read it, or have said that they cannot. */
    const answered = new Set<number>();
    const groups = await Promise.all(
      range(1, EACH).map((number) =>
        joinGroup(context, membership, {
          groupId: `group-${number}`,
          topics: [topic],
          batch: 10,
          onBatches: () => void answered.add(number),
          onFailure: () => void answered.add(number),
        }),
      ),
    );

    await until(
      "some have forgotten it",
      async () => {
        told = 0;
        isAlone = true;
        broker.proxy.cut();
        await until("some are told", () => told >= 2 * EACH, LONG);
        isAlone = false;
        return (await Promise.all([...looks].map((look) => look()))).includes(true);
      },
      LONG,
    );
    const producer = client.producer();
    await producer.connect();
    await producer.send({ topic, messages: [{ value: "news" }] });
    await until("all tails have it", () => read === tails.length, LONG);
    await until("all groups have it or start again", () => answered.size === groups.length, LONG);
    await producer.disconnect();
    for (const group of groups) await group.leave();
    for (const tail of tails) await tail.stop();
    await watch.stop();
    await offsets.stop();
  });

  test.each([
    { transactions: false, busy: false },
    { transactions: true, busy: true },
  ])(
    "is found again by every reader and writer, with %o",
    { timeout: 900_000 },
    async ({ transactions, busy }) => {
      const board = await openBoard(await testContext({ onWarning() {} }), {
        agents: [rules("agent")],
        route: routeByTags,
        observer: new Heard(),
        kafka: { bootstrap: broker.bootstrap, clientId: `process-${transactions}-${busy}` },
        prefix: `t-${transactions}-${busy}.`,
        transactions,
        partitions: 2,
        replication: 1,
        producers: 2,
        retryDelaysMs: [1_000],
        sessionTimeoutMs: 6_000,
      });
      const worker = new Worker("agent");
      const working = start(worker, board);
      const put = async () => {
        const artifacts = range(1, 5).map(() => makeTestArtifact({ to: "agent" }));
        const taken = () =>
          board.publish(artifacts).then(
            () => true,
            () => false,
          );
        await until("they are taken", taken, LONG);
        const isRun = (id: string) => worker.runs.some(({ task }) => task.id === id);
        await until("they are done", () => artifacts.every(({ id }) => isRun(id)), LONG);
        await until(
          "one is found",
          () => board.get(artifacts[0]!.org_id, artifacts[0]!.id).catch(() => undefined),
          LONG,
        );
      };
      await put();
      const nobodyLags = async () =>
        (await board.lag().catch(() => undefined))?.every(({ lag }) => lag === "0");
      await until("nobody lags", nobodyLags, LONG);

      told = 0;
      const going = busy ? put() : undefined;
      isAlone = true;
      broker.proxy.cut();
      await until("some are told", () => told >= TOLD, LONG);
      isAlone = false;
      await going;

      await put();
      await until("nobody lags", nobodyLags, LONG);
      await working.stop();
      await board.stop();
    },
  );
});
