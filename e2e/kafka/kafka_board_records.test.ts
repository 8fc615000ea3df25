import {
  eventually,
  Heard,
  makeTestArtifact,
  makeTestTask,
  newName,
  range,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { dead, payloadOf, retry, start, Worker } from "@khala/test-support/conformance/board/worker";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { type KafkaBoard, kafkaBoard } from "@khala/test-support/kafka/kafka_board";
import { testContext } from "@khala/test-support/kit/context";
import { noRemoteWork } from "@khala/test-support/kit/executor";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openKafkaClient } from "../../packages/kafka/src/client/client.ts";
import type { KafkaProducer, NewRecord } from "../../packages/kafka/src/client/client_types.ts";
import { processedRecord, taskRecord } from "../../packages/kafka/src/topics/records.ts";
import { type TopicNames, topicNames } from "../../packages/kafka/src/topics/topics.ts";
import type { Board } from "../../packages/server/src/blackboard/board.ts";
import { agent } from "../../packages/server/src/blackboard/model/define_agent.ts";
import { boardMetrics } from "../../packages/server/src/blackboard/observe/metrics.ts";
import { boardObserver, everyObserver } from "../../packages/server/src/blackboard/observe/observer.ts";
import { boardSpans } from "../../packages/server/src/blackboard/observe/spans.ts";
import { openAgentConsumer } from "../../packages/server/src/blackboard/work/execution.ts";
import { openSlots } from "../../packages/server/src/blackboard/work/slots.ts";
import { openTelemetry, type Telemetry } from "../../packages/server/src/kit/telemetry.ts";

const AGENTS = ["slow", "dying", "traced", "foreign", "unread"];
const DAY_MS = 86_400_000;
const TIER_MS = 100;
const TRACE = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;

describe.skipIf(!kafkaHere())("the records of a board on Kafka", { timeout: 120_000 }, () => {
  const heard = new Heard();
  const ended: { readonly name: string; readonly attributes: Readonly<Record<string, unknown>> }[] = [];
  let telemetry: Telemetry;
  let under: KafkaBoard;
  let board: Board;
  let names: TopicNames;
  let producer: KafkaProducer;

  async function tracing() {
    const context = { ...(await testContext()), telemetry };
    const metrics = boardMetrics(telemetry, AGENTS);
    const carrier = { system: "kafka", artifacts: names.artifacts, tasks: names.tasks } as const;
    return { context, metrics, spans: boardSpans(context, carrier) };
  }
  let traced: Awaited<ReturnType<typeof tracing>>;

  beforeAll(async () => {
    const spanProcessor = {
      onStart() {},
      onEnd: (span: (typeof ended)[number]) => void ended.push(span),
      async forceFlush() {},
      async shutdown() {},
    };
    telemetry = await openTelemetry({ spanProcessor });
    under = await kafkaBoard({ retryDelaysMs: [TIER_MS] });
    names = topicNames({ prefix: under.prefix });
    traced = await tracing();
    board = await under.open({
      agents: AGENTS.map((name) => rules(name)),
      route: routeByTags,
      observer: everyObserver([heard, boardObserver(traced.metrics, traced.spans)]),
    });
    const client = await openKafkaClient({ bootstrap: under.bootstrap, clientId: "test" });
    producer = client.producer();
    await producer.connect();
  }, 120_000);
  afterAll(async () => {
    await producer?.disconnect();
    await under?.[Symbol.asyncDispose]();
    await telemetry?.shutdown();
  }, 120_000);

  const write = (topic: string, ...messages: NewRecord[]) => producer.send({ topic, messages });

  test("a task settled weeks ago behind one that still waits does not run again after a restart", async () => {
    const before = Date.now() - 20 * DAY_MS;
    const topic = names.tasks("slow");
    const tasks = ["waits", "settled"].map((payload) => makeTestTask("slow", makeTestArtifact({ payload })));
    const [waits, settled] = tasks as [(typeof tasks)[0], (typeof tasks)[0]];
    const old = { partition: 0, timestamp: String(before) };
    await write(topic, ...tasks.map((task) => ({ ...taskRecord(task), ...old })));
    const at = new Date(before).toISOString();
    const mark = processedRecord(settled, "done", { topic, partition: 0, offset: "1" }, at);
    await write(names.processed, { ...mark, timestamp: old.timestamp });
    const worker = new Worker("slow");
    await using _ = start(worker, board);
    await eventually(() => expect(heard.repetitions.map(({ id }) => id)).toContain(settled.id));
    await eventually(() => expect(heard.settledBy("slow")).toHaveLength(1));
    expect(worker.runs.map(({ task }) => payloadOf(task))).toEqual([payloadOf(waits)]);
  });

  test("a dead letter has its record's first position, after any number of retries", async () => {
    const worker = new Worker("dying", ({ attempt }) => (attempt < 3 ? retry(TIER_MS) : dead()));
    await using _ = start(worker, board);
    await board.publish([makeTestArtifact({ to: "dying" })]);
    await eventually(() => expect(heard.settledBy("dying")).toHaveLength(3));
    const places = heard.settledBy("dying").map(({ place }) => place);
    expect(new Set(places.map(({ offset }) => offset)).size).toBe(3);
    const [{ topic, partition, offset }] = places as [(typeof places)[0]];
    await eventually(async () => {
      const { deadLetters } = await board.deadLetters("dying", { orgs: ["acme"], limit: 10 });
      expect(deadLetters).toMatchObject([{ attempts: 3, origin: `${topic}/${partition}@${offset}` }]);
    });
  });

  test("the spans of routing and settling have the record's position, and name their transaction", async () => {
    const { context, metrics, spans } = traced;
    const { known } = board;
    const shared = { slots: openSlots(1), metrics, spans, schemas: {}, maxDepth: 8, known };
    const work = agent("traced", { consumes: "Draft", run: () => ({ type: "Review", payload: 1 }) });
    const service = board.consume(openAgentConsumer(context, shared, work, noRemoteWork));
    const artifact = makeTestArtifact({ to: "traced", traceparent: TRACE });
    await board.publish([artifact]);
    await eventually(() => expect(heard.settledBy("traced")).toHaveLength(1));
    const spanOf = (step: string) =>
      ended.find(
        ({ name, attributes }) => name.startsWith(`${step} `) && attributes["artifact.id"] === artifact.id,
      )?.attributes;
    const where = {
      partition: expect.any(Number),
      offset: expect.stringMatching(/^\d+$/),
      transaction_id: expect.stringMatching(new RegExp(`^${under.prefix}0-[01]$`)),
    };
    await eventually(() => expect(spanOf("route")).toBeDefined());
    expect(spanOf("route")).toMatchObject({ "kafka.topic": names.artifacts, ...where });
    expect(spanOf("settle")).toMatchObject({ "kafka.topic": names.tasks("traced"), ...where });
    await service.stop();
  });

  test("an artifact of another producer belongs to the valid trace of its header", async () => {
    const worker = new Worker("foreign");
    await using _ = start(worker, board);
    const artifacts = range(1, 3).map((payload) => makeTestArtifact({ to: "foreign", payload }));
    const own = TRACE.replaceAll("a", "c");
    const bodies = [artifacts[0]!, artifacts[1]!, { ...artifacts[2]!, traceparent: own }];
    const traces = [TRACE, `00-${"0".repeat(32)}-${"b".repeat(16)}-01`, TRACE];
    const messages = bodies.map((body, i) => ({
      key: newName("k"),
      value: JSON.stringify(body),
      headers: { traceparent: traces[i]! },
    }));
    await write(names.artifacts, ...messages);
    await worker.ran(3);
    const found = new Map(worker.runs.map(({ task }) => [payloadOf(task), task.artifacts[0].traceparent]));
    expect(range(1, 3).map((payload) => found.get(payload))).toEqual([TRACE, undefined, own]);
  });

  test("counts a record that cannot be read as a dead letter of its reader", async () => {
    const worker = new Worker("unread");
    await using _ = start(worker, board);
    const message = { key: "k", value: Buffer.from([0xff]) };
    for (const topic of [names.artifacts, names.retry(TIER_MS), names.tasks("unread")])
      await write(topic, message);
    await eventually(() => expect(heard.unread.toSorted()).toEqual(["router", "router", "unread"]));
    const text = await telemetry.scrape();
    expect(text).toMatch(/^khala_board_dead_letters_total\{agent="router"\} 2/m);
    expect(text).toMatch(/^khala_board_dead_letters_total\{agent="unread"\} 1/m);
  });
});
