import { NO_ORG } from "@khala/server/blackboard";
import {
  eventually,
  Heard,
  makeTestArtifact,
  makeTestTask,
  newName,
  numbered,
  range,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { dead, done, payloadOf, retry, start, Worker } from "@khala/test-support/conformance/board/worker";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { type KafkaBoard, kafkaBoard } from "@khala/test-support/kafka/kafka_board";
import { alterTopic } from "@khala/test-support/kafka/topics";
import { describe, expect, test, vi } from "vitest";
import { type KafkaSettings, openKafkaClient } from "../../packages/kafka/src/client/client.ts";
import type { KafkaProducer } from "../../packages/kafka/src/client/client_types.ts";
import type { KafkaBoardSettings } from "../../packages/kafka/src/settings.ts";
import { taskRecord } from "../../packages/kafka/src/topics/records.ts";
import { openTopicConfigs } from "../../packages/kafka/src/topics/topic_setup.ts";
import { type TopicNames, topicNames } from "../../packages/kafka/src/topics/topics.ts";
import type { Board } from "../../packages/server/src/blackboard/board.ts";

/** The outputs that are visible. */
const made = (board: Board) => board.recent({ org: "acme", type: "Made", limit: 100 });

// They mostly wait for groups to form.
vi.setConfig({ maxConcurrency: 8 });

/** A board of a test's own. */
class TrapBoard implements AsyncDisposable {
  readonly under: KafkaBoard;
  readonly heard = new Heard();

  constructor(under: KafkaBoard) {
    this.under = under;
  }

  open(given: Partial<KafkaBoardSettings> = {}): Promise<Board> {
    const options = { agents: [rules("agent")], route: routeByTags, observer: this.heard };
    return this.under.open(options, given);
  }

  get names(): TopicNames {
    return topicNames({ prefix: this.under.prefix });
  }

  get kafka(): KafkaSettings {
    return { bootstrap: this.under.bootstrap, clientId: "test" };
  }

  /** What this agent settled. */
  get settled() {
    return this.heard.settledBy("agent");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.under[Symbol.asyncDispose]();
  }
}

const trap = async () => new TrapBoard(await kafkaBoard());

describe.skipIf(!kafkaHere()).concurrent("on Kafka", { timeout: 120_000 }, () => {
  test("drops the results of a process whose partition went to another", async () => {
    await using on = await trap();
    const leaveMs = 1_000;
    const [a, b] = [await on.open({ leaveMs }), await on.open({ leaveMs })];
    const output = (payload: string) => makeTestArtifact({ type: "Made", payload });
    const slow = new Worker("agent", () => slow.released.then(() => done(output("thrown away"))), 20);
    await using _ = start(slow, a);
    await a.publish(range(1, 16).map(() => makeTestArtifact({ to: "agent" })));
    await eventually(() => expect(slow.runs).toHaveLength(16));
    const quick = new Worker("agent", () => done(output("kept")));
    await using __ = start(quick, b);
    await eventually(() => expect(quick.runs.length).toBeGreaterThan(0));
    await eventually(() =>
      expect(slow.runs.filter(({ signal }) => signal.aborted)).toHaveLength(quick.runs.length),
    );
    slow.release();
    await eventually(() => expect(on.settled).toHaveLength(16));
    await eventually(async () => expect(await made(a)).toHaveLength(16));
    const kept = (await made(a)).filter(({ payload }) => payload === "kept");
    expect(kept).toHaveLength(quick.runs.length);
  });

  test("a process that takes over waits for its predecessor's open transaction, and repeats nothing", async () => {
    await using on = await trap();
    const board = await on.open();
    const first = new Worker("agent");
    const started = start(first, board);
    const key = newName("k");
    await board.publish(numbered("agent", key, 5));
    await eventually(() => expect(on.settled).toHaveLength(5));
    await started.stop();
    // A predecessor that has sent the offsets of two more tasks, and will never commit.
    await board.publish(numbered("agent", key, 2));
    const kafka = await openKafkaClient(on.kafka);
    const producer = kafka.producer({ transactionalId: newName("t"), transactionTimeoutMs: 5_000 });
    const consumer = kafka.consumer({ groupId: on.names.agentGroup("agent") });
    await producer.connect();
    await consumer.connect();
    await consumer.subscribe({ topics: [on.names.tasks("agent")] });
    const seen = Promise.withResolvers<void>();
    await consumer.run({
      async eachBatch({ batch }) {
        await producer.transaction();
        const offset = String(Number(batch.lastOffset()) + 1);
        const partitions = [{ partition: batch.partition, offset }];
        await producer.sendOffsets({ consumer, topics: [{ topic: batch.topic, partitions }] });
        seen.resolve();
      },
    });
    await seen.promise;
    await consumer.disconnect();
    const second = new Worker("agent");
    await using _ = start(second, board);
    await second.ran(2);
    expect(second.payloads()).toEqual([1, 2]);
    expect(on.heard.repetitions).toEqual([]);
    await producer.disconnect();
  });

  test("runs nothing of aborted transactions, and passes their markers", async () => {
    await using on = await trap();
    const board = await on.open();
    const kafka = await openKafkaClient(on.kafka);
    const [one, other] = [newName("t"), newName("t")].map((transactionalId) =>
      kafka.producer({ transactionalId, transactionTimeoutMs: 60_000 }),
    ) as [KafkaProducer, KafkaProducer];
    await one.connect();
    await other.connect();
    const key = newName("k");
    const committed: number[] = [];
    let count = 0;
    const send = async (producer: KafkaProducer, bytes: number, isKept: boolean) => {
      const payload = { n: ++count, filler: "x".repeat(bytes) };
      if (isKept) committed.push(count);
      const task = makeTestTask("agent", makeTestArtifact({ partition_key: key, payload }));
      await producer.send({ topic: on.names.tasks("agent"), messages: [taskRecord(task)] });
    };
    // All are written before anybody reads, so that one fetch has many of them. Every eighth is larger than a fetch
    // (1 MiB), so that its marker comes with another one.
    for (const round of range(1, 24)) {
      const isKept = round % 3 === 0;
      await one.transaction();
      for (const bytes of round % 8 === 0 ? [400_000, 400_000, 400_000] : [10 * round])
        await send(one, bytes, isKept);
      if (round % 2 === 0) {
        await other.transaction();
        await send(other, 10, true);
        await other.commit();
      }
      await (isKept ? one.commit() : one.abort());
    }
    await one.disconnect();
    await other.disconnect();
    const worker = new Worker("agent");
    await using _ = start(worker, board);
    await worker.ran(committed.length);
    expect(worker.runs.map(({ task }) => (payloadOf(task) as { n: number }).n)).toEqual(committed);
    await eventually(async () => {
      const lag = (await board.lag()).filter(({ reader }) => reader === "agent");
      expect(lag.every((each) => each.lag === "0")).toBe(true);
    });
  });

  test("undecodable records become dead letters unchanged, and the partition continues", async () => {
    await using on = await trap();
    const board = await on.open();
    // Each task goes through a retry topic, too.
    const worker = new Worker("agent", ({ attempt }) => (attempt === 1 ? retry(1_000) : done()));
    await using _ = start(worker, board);
    const kafka = await openKafkaClient(on.kafka);
    const producer = kafka.producer();
    await producer.connect();
    const raw = Buffer.from([0xff, 0x00, 0x7b]);
    for (const topic of [on.names.artifacts, on.names.tasks("agent"), on.names.retry(1_000)])
      for (const partition of range(0, 3))
        await producer.send({ topic, messages: [{ key: "k", value: raw, partition }] });
    await producer.disconnect();
    await board.publish(range(1, 20).map(() => makeTestArtifact({ to: "agent" })));
    await worker.ran(40);
    const readers = [
      ["router", [on.names.artifacts, on.names.retry(1_000)]],
      ["agent", [on.names.tasks("agent")]],
    ] as const;
    for (const [reader, topics] of readers)
      await eventually(async () => {
        const { deadLetters } = await board.deadLetters(reader, { orgs: [NO_ORG], limit: 20 });
        const origins = topics.flatMap((topic) => range(0, 3).map((partition) => `${topic}/${partition}@0`));
        expect(deadLetters.map(({ origin }) => origin).toSorted()).toEqual(origins.toSorted());
        for (const letter of deadLetters)
          expect(letter).toMatchObject({
            raw: raw.toString("base64"),
            failure: { class: "UnreadableRecord" },
          });
      });
    await eventually(async () => expect((await board.lag()).every(({ lag }) => lag === "0")).toBe(true));
  });

  test("a retry in its topic runs when it is due, also when the reader of the topic changes", async () => {
    await using on = await trap();
    const first = await on.open();
    const worker = new Worker("agent", (task) => (task.attempt === 1 ? retry(4_000) : done()));
    const started = start(worker, first);
    await first.publish(range(1, 6).map(() => makeTestArtifact({ to: "agent" })));
    await eventually(() => expect(on.settled).toHaveLength(6));
    const second = await on.open();
    await using _ = start(worker, second);
    await started.stop();
    await first.stop();
    await worker.ran(12);
    const again = worker.runs.filter(({ task }) => task.attempt === 2);
    expect(again).toHaveLength(6);
    for (const { task, startedAt } of again) {
      const failed = worker.runs.find((run) => run.task.id === task.id && run.task.attempt === 1)!;
      expect(startedAt - failed.endedAt!).toBeGreaterThan(3_500);
    }
    await eventually(() => expect(on.settled).toHaveLength(12));
  });

  test.each([
    {
      what: "dead letter",
      topic: (names: TopicNames) => names.deadLetters("agent"),
      first: dead("no"),
      kinds: ["dead"],
    },
    {
      what: "retry",
      topic: (names: TopicNames) => names.retry(1_000),
      first: retry(1_000),
      kinds: ["retry", "done"],
    },
  ])(
    "when a $what cannot be written, keeps the task's offset, and loses nothing",
    async ({ topic: topicOf, first, kinds }) => {
      await using on = await trap();
      const topic = topicOf(on.names);
      const board = await on.open();
      const { kafka } = on;
      const configs = await openTopicConfigs(kafka);
      const before = (await configs.describe([topic])).get(topic)!.get("max.message.bytes")!;
      await configs.close();
      // Room enough for the marker of a transaction, or the broker could not even abort it.
      await alterTopic(kafka, topic, { "max.message.bytes": "300" });
      const worker = new Worker("agent", ({ attempt }) => (attempt === 1 ? first : done()));
      await using _ = start(worker, board);
      await board.publish([makeTestArtifact({ to: "agent", payload: "x".repeat(1_000) })]);
      await worker.ran(1);
      const failed = () => on.under.warnings.filter((line) => line.includes("a settlement failed")).length;
      // The second has seen what the first one left.
      await eventually(() => expect(failed()).toBeGreaterThan(1));
      const lagging = async () =>
        (await board.lag()).filter(({ reader, lag }) => reader === "agent" && lag !== "0");
      expect(await lagging()).toHaveLength(1);
      expect(on.settled).toEqual([]);
      await alterTopic(kafka, topic, { "max.message.bytes": before });
      await eventually(() => expect(on.settled.map(({ settlement }) => settlement.kind)).toEqual(kinds));
      await eventually(async () => expect(await lagging()).toEqual([]));
      const letters = (await board.deadLetters("agent", { orgs: ["acme"], limit: 10 })).deadLetters;
      expect(letters).toHaveLength(kinds.filter((kind) => kind === "dead").length);
      // A process that loses its partition before a result is written runs the task again, as the same attempt.
      expect([...new Set(worker.attempts())]).toEqual(range(1, kinds.length));
    },
  );
});
