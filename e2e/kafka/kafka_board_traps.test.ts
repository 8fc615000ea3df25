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
} from "@khala/testing/conformance/board/support";
import { dead, done, payloadOf, retry, start, Worker } from "@khala/testing/conformance/board/worker";
import { kafkaHere } from "@khala/testing/kafka/kafka";
import { type KafkaBoard, kafkaBoard } from "@khala/testing/kafka/kafka_board";
import { alterTopic } from "@khala/testing/kafka/topics";
import { type Program, startProgram } from "@khala/testing/processes/programs";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openKafkaClient } from "../../packages/kafka/src/client/client.ts";
import type { KafkaProducer } from "../../packages/kafka/src/client/client_types.ts";
import { taskRecord } from "../../packages/kafka/src/topics/records.ts";
import { openTopicConfigs } from "../../packages/kafka/src/topics/topic_configs.ts";
import { topicNames } from "../../packages/kafka/src/topics/topics.ts";
import type { Artifact } from "../../packages/server/src/blackboard/model/artifact.ts";

const AGENTS = [rules("agent"), rules("strict", { strict: true })];

describe.skipIf(!kafkaHere())("the traps of Kafka", { timeout: 120_000 }, () => {
  let under: KafkaBoard;
  let heard: Heard;
  beforeEach(async () => {
    under = await kafkaBoard();
    heard = new Heard();
  });
  afterEach(() => under[Symbol.asyncDispose]());

  const open = (given = {}) =>
    under.open({ agents: AGENTS, route: routeByTags, routes: true, observer: heard }, given);
  const names = () => topicNames({ prefix: under.prefix });
  const client = () => openKafkaClient({ bootstrap: under.bootstrap, clientId: "test" });

  function program(name: string, mode: string, agent = "agent", ms = ""): Program {
    return startProgram("kafka_worker", under.bootstrap, under.prefix, name, agent, mode, ms);
  }

  async function line(worker: Program, pattern: RegExp): Promise<string> {
    for (;;) {
      const text = await worker.line();
      if (pattern.test(text)) return text;
    }
  }

  /** What became visible of the work that was done. */
  const made = async (board: Awaited<ReturnType<typeof open>>): Promise<Artifact[]> =>
    board.recent({ org: "acme", type: "Made", limit: 100 });

  test("1: a process that stood still while another took over its tasks settles nothing when it wakes", async () => {
    const board = await open();
    await using sleeper = program("sleeper", "late", "agent", "3000");
    await line(sleeper, /^ready/);
    await board.publish([makeTestArtifact({ to: "agent", partition_key: newName("k") })]);
    await line(sleeper, /^ran/);
    sleeper.child.kill("SIGSTOP");
    await using rival = program("sleeper", "done");
    await line(rival, /^settled \S+ done/);
    sleeper.child.kill("SIGCONT");
    // It goes on as a new member: what comes now is settled once, by whoever has it.
    await board.publish(range(1, 8).map(() => makeTestArtifact({ to: "agent" })));
    await eventually(async () => expect((await made(board)).length).toBeGreaterThanOrEqual(9));
    expect(await made(board)).toHaveLength(9);
  });

  test("2: what a process answers after its partition went to another is thrown away", async () => {
    const leaveMs = 1_000;
    const [a, b] = [await open({ leaveMs }), await open({ leaveMs })];
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
    await eventually(() => expect(heard.settledBy("agent")).toHaveLength(16));
    await eventually(async () => expect(await made(a)).toHaveLength(16));
    const kept = (await made(a)).filter(({ payload }) => payload === "kept");
    expect(kept).toHaveLength(quick.runs.length);
  });

  test("3: who takes over waits for the transaction that its predecessor left, and does not begin anew", async () => {
    const board = await open();
    const first = new Worker("agent");
    const started = start(first, board);
    const key = newName("k");
    await board.publish(numbered("agent", key, 5));
    await eventually(() => expect(heard.settledBy("agent")).toHaveLength(5));
    await started.stop();
    // A predecessor that has sent the offsets of two more tasks, and will never commit.
    await board.publish(numbered("agent", key, 2));
    const kafka = await client();
    const producer = kafka.producer({ transactionalId: newName("t"), transactionTimeoutMs: 5_000 });
    const consumer = kafka.consumer({ groupId: names().agentGroup("agent") });
    await producer.connect();
    await consumer.connect();
    await consumer.subscribe({ topics: [names().tasks("agent")] });
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
    expect(heard.repetitions).toEqual([]);
    await producer.disconnect();
  });

  test("4: of two processes with one transactional id the older one is fenced off, says so, and loses no task", async () => {
    const [a, b] = [await open({ transactionalId: "twin" }), await open({ transactionalId: "twin" })];
    const worker = new Worker("agent");
    await using _ = start(worker, a, b);
    const published: Artifact[] = [];
    // Each publishes in turn, and so takes the id from the other.
    for (const artifact of range(1, 12).map(() => makeTestArtifact({ to: "agent" })))
      for (const board of [a, b])
        await board.publish([artifact]).then(
          () => published.push(artifact),
          (error: unknown) => expect(error).toMatchObject({ code: "unavailable" }),
        );
    const ids = new Set(published.map(({ id }) => id));
    await eventually(() => expect(new Set(heard.settledBy("agent").map(({ task }) => task.id))).toEqual(ids));
    expect(heard.settledBy("agent")).toHaveLength(ids.size);
  });

  test("5: a crash after the work and before its end runs it twice under one key, and shows one output", async () => {
    const board = await open();
    const artifact = makeTestArtifact({ to: "agent" });
    await using crashing = program("crashing", "die");
    await line(crashing, /^ready/);
    await board.publish([artifact]);
    expect(await line(crashing, /^ran/)).toBe(`ran ${artifact.id} 1`);
    await crashing.ended;
    await using next = program("next", "done");
    expect(await line(next, /^ran/)).toBe(`ran ${artifact.id} 1`);
    await line(next, /^settled/);
    await eventually(async () => expect(await made(board)).toHaveLength(1));
  });

  test("7 and 8: nothing of aborted transactions is worked on, many at a time or read in parts, and their markers stop nobody", async () => {
    const board = await open();
    const kafka = await client();
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
      await producer.send({ topic: names().tasks("agent"), messages: [taskRecord(task)] });
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

  test("9: behind a task that takes long others are settled, and a crash runs only that one again", async () => {
    const board = await open();
    await using first = program("first", "first");
    await line(first, /^ready/);
    const slow = makeTestArtifact({ to: "agent" });
    await board.publish([slow]);
    await line(first, /^ran/);
    await board.publish(range(1, 60).map(() => makeTestArtifact({ to: "agent" })));
    for (const _ of range(1, 60)) await line(first, /^settled/);
    first.child.kill("SIGKILL");
    const next = new Worker("agent", () => done(makeTestArtifact({ type: "Made" })));
    await using _ = start(next, board);
    await eventually(() => expect(heard.settledBy("agent")).toHaveLength(1));
    await next.ran(1);
    expect(next.runs[0]!.task.id).toBe(slow.id);
    await eventually(async () => expect(await made(board)).toHaveLength(61));
  });

  test("10: what cannot be read goes to the dead letters as it is, and the partition goes on", async () => {
    const board = await open();
    // Each task goes through a retry topic, too.
    const worker = new Worker("agent", ({ attempt }) => (attempt === 1 ? retry(1_000) : done()));
    await using _ = start(worker, board);
    const kafka = await client();
    const producer = kafka.producer();
    await producer.connect();
    const raw = Buffer.from([0xff, 0x00, 0x7b]);
    for (const topic of [names().artifacts, names().tasks("agent"), names().retry(1_000)])
      for (const partition of range(0, 3))
        await producer.send({ topic, messages: [{ key: "k", value: raw, partition }] });
    await producer.disconnect();
    await board.publish(range(1, 20).map(() => makeTestArtifact({ to: "agent" })));
    await worker.ran(40);
    const readers = [
      ["router", [names().artifacts, names().retry(1_000)]],
      ["agent", [names().tasks("agent")]],
    ] as const;
    for (const [reader, topics] of readers)
      await eventually(async () => {
        const { deadLetters } = await board.deadLetters(reader, { limit: 20 });
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

  test("11: strict: a crash between two attempts forgets neither the count nor the order", async () => {
    const board = await open();
    const key = newName("k");
    await using first = program("first", "retry", "strict", "3000");
    await line(first, /^ready/);
    await board.publish(numbered("strict", key, 3));
    await line(first, /^settled \S+ retry/);
    first.child.kill("SIGKILL");
    const worker = new Worker(AGENTS[1]!, (task) =>
      task.attempt < 4 && payloadOf(task) === 1 ? retry(20) : done(),
    );
    await using _ = start(worker, board);
    await eventually(() => expect(worker.payloads(key)).toContain(3));
    const [attempt] = worker.attempts(key);
    expect(attempt).toBeGreaterThan(1);
    expect(worker.payloads(key)).toEqual([...range(attempt!, 4).map(() => 1), 2, 3]);
  });

  test("12: a retry that waits in its topic comes when it is due, also when the reader of the topic changes", async () => {
    const first = await open();
    const worker = new Worker("agent", (task) => (task.attempt === 1 ? retry(4_000) : done()));
    const started = start(worker, first);
    await first.publish(range(1, 6).map(() => makeTestArtifact({ to: "agent" })));
    await eventually(() => expect(heard.settledBy("agent")).toHaveLength(6));
    const second = await open();
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
    await eventually(() => expect(heard.settledBy("agent")).toHaveLength(12));
  });

  test.each([
    { what: "dead letter", topic: () => names().deadLetters("agent"), first: dead("no"), kinds: ["dead"] },
    { what: "retry", topic: () => names().retry(1_000), first: retry(1_000), kinds: ["retry", "done"] },
  ])(
    "13: where a $what cannot be written the task's offset stays, and nothing is lost",
    async ({ topic, first, kinds }) => {
      const board = await open();
      const kafka = { bootstrap: under.bootstrap, clientId: "test" };
      const configs = await openTopicConfigs(kafka);
      const before = (await configs.describe([topic()])).get(topic())!.get("max.message.bytes")!;
      await configs.close();
      // Room enough for the marker of a transaction, or the broker could not even abort it.
      await alterTopic(kafka, topic(), { "max.message.bytes": "300" });
      const worker = new Worker("agent", ({ attempt }) => (attempt === 1 ? first : done()));
      await using _ = start(worker, board);
      await board.publish([makeTestArtifact({ to: "agent", payload: "x".repeat(1_000) })]);
      await worker.ran(1);
      const failed = () => under.warnings.filter((line) => line.includes("a settlement failed")).length;
      // The second has seen what the first one left.
      await eventually(() => expect(failed()).toBeGreaterThan(1));
      const lagging = async () =>
        (await board.lag()).filter(({ reader, lag }) => reader === "agent" && lag !== "0");
      expect(await lagging()).toHaveLength(1);
      expect(heard.settledBy("agent")).toEqual([]);
      await alterTopic(kafka, topic(), { "max.message.bytes": before });
      await eventually(() =>
        expect(heard.settledBy("agent").map(({ settlement }) => settlement.kind)).toEqual(kinds),
      );
      await eventually(async () => expect(await lagging()).toEqual([]));
      const letters = (await board.deadLetters("agent", { limit: 10 })).deadLetters;
      expect(letters).toHaveLength(kinds.filter((kind) => kind === "dead").length);
      // Whoever loses its partition before a result is written does the task again, as the same attempt.
      expect([...new Set(worker.attempts())]).toEqual(range(1, kinds.length));
    },
  );
});
