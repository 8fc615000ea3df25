import { NO_ORG, type Task } from "@khala/server/blackboard";
import {
  eventually,
  Heard,
  makeTestArtifact,
  makeTestTask,
  range,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { dead, done, payloadOf, retry, start, Worker } from "@khala/test-support/conformance/board/worker";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { kafkaBoard } from "@khala/test-support/kafka/kafka_board";
import { describe, expect, test, vi } from "vitest";
import { openKafkaClient } from "../../packages/kafka/src/client/client.ts";
import type { NewRecord } from "../../packages/kafka/src/client/client_types.ts";
import { HEADER } from "../../packages/kafka/src/topics/record_headers.ts";
import {
  artifactRecord,
  byIdRecord,
  deadLetterRecord,
  retryRecord,
  taskRecord,
} from "../../packages/kafka/src/topics/records.ts";
import { type TopicNames, topicNames } from "../../packages/kafka/src/topics/topics.ts";

// They mostly wait for groups to form.
vi.setConfig({ maxConcurrency: 8 });

const POISON = "poison";
const origin = { topic: "t", partition: 0, offset: "1", timestamp: 1 };
const failure = { class: "Error", message: "no", kind: "retryable" } as const;
const LARGEST = Buffer.from("7fffffffffffffff", "hex");

const poison = (given: object = {}) =>
  makeTestArtifact({ to: "agent", payload: POISON, ...(given as Partial<Task["artifacts"][0]>) });
const task = (given: object = {}, artifact = poison()) => ({
  ...makeTestTask("agent", artifact),
  ...(given as Partial<Task>),
});
const withHeaders = (record: NewRecord, headers: NewRecord["headers"]): NewRecord => ({
  ...record,
  headers: { ...record.headers, ...headers },
});
/** JSON.stringify could not write it. */
const deep = (json: NewRecord): NewRecord => ({
  ...json,
  value: String(json.value).replace(`"${POISON}"`, `${"[".repeat(200_000)}${"]".repeat(200_000)}`),
});

interface Case {
  readonly what: string;
  readonly topic: (names: TopicNames) => string;
  readonly record: () => NewRecord;
  /** Whose dead letter it becomes; a view only skips it. */
  readonly reader?: "router" | "agent";
}

const artifacts = (names: TopicNames) => names.artifacts;
const tasks = (names: TopicNames) => names.tasks("agent");
const retries = (names: TopicNames) => names.retry(1_000);

const CASES: readonly Case[] = [
  {
    what: "an artifact that is nested too deep",
    topic: artifacts,
    record: () => deep(artifactRecord(poison())),
    reader: "router",
  },
  {
    what: "an artifact whose correlation has a NUL",
    topic: artifacts,
    record: () => artifactRecord(poison({ correlation_id: "a\0b" })),
    reader: "router",
  },
  {
    what: "an artifact of an org without end",
    topic: artifacts,
    record: () => artifactRecord(poison({ org_id: "o".repeat(100_000) })),
    reader: "router",
  },
  {
    what: "a task of no attempt that could be counted",
    topic: tasks,
    record: () => taskRecord(task({ attempt: 2 ** 40 })),
    reader: "agent",
  },
  {
    what: "a task that is nested too deep",
    topic: tasks,
    record: () => deep(taskRecord(task())),
    reader: "agent",
  },
  {
    what: "a task of another agent",
    topic: tasks,
    record: () => taskRecord(task({ agent: "somebody" })),
    reader: "agent",
  },
  {
    what: "a task whose replay is no text",
    topic: tasks,
    record: () => taskRecord(task({ replay_id: 7 })),
    reader: "agent",
  },
  {
    what: "a task whose pause is no number",
    topic: tasks,
    record: () => taskRecord(task({ replay_id: "r+x" })),
    reader: "agent",
  },
  {
    what: "a task without a time",
    topic: tasks,
    record: () => taskRecord(task({ created_at: "never" })),
    reader: "agent",
  },
  {
    what: "an unreadable task that was nowhere before",
    topic: tasks,
    record: () =>
      withHeaders(
        { key: "k", value: "?" },
        {
          [HEADER.originalTopic]: "t",
          [HEADER.originalPartition]: Buffer.alloc(4),
          [HEADER.originalOffset]: LARGEST,
          [HEADER.originalTimestamp]: LARGEST,
        },
      ),
    reader: "agent",
  },
  {
    what: "bytes that only just fit into a task",
    topic: tasks,
    record: () => ({ key: "k", value: Buffer.alloc(8 * 1_048_576 + 65_000, 1) }),
    reader: "agent",
  },
  {
    what: "a retry of an agent that has no topic",
    topic: retries,
    record: () => retryRecord(task({ agent: "nobody", attempt: 2 }), failure, origin, 0),
    reader: "router",
  },
  {
    what: "a retry of something that cannot be an agent",
    topic: retries,
    record: () => retryRecord(task({ agent: "no body!", attempt: 2 }), failure, origin, 0),
    reader: "router",
  },
  {
    what: "a retry that is never due",
    topic: retries,
    record: () =>
      withHeaders(retryRecord(task({ attempt: 2 }), failure, origin, 0), { [HEADER.due]: LARGEST }),
    reader: "router",
  },
  {
    what: "bytes that only just fit into a retry",
    topic: retries,
    record: () => ({ key: "k", value: Buffer.alloc(8 * 1_048_576 + 65_000, 1) }),
    reader: "router",
  },
  {
    what: "an entry of the index with a version that is none",
    topic: (names) => names.byId,
    record: () => withHeaders(byIdRecord(poison()), { [HEADER.index]: `${2 ** 40} [1,{},[]]` }),
  },
  {
    what: "a mark of another program",
    topic: (names) => names.processed,
    record: () => ({
      key: "a:b:c",
      value: JSON.stringify({ result: "waits", due_at: 9e15, correlation_id: "c" }),
    }),
  },
  {
    what: "a dead letter of another program",
    topic: (names) => names.deadLetters("agent"),
    record: () =>
      withHeaders(
        deadLetterRecord(
          {
            id: "x",
            agent: "agent",
            failure,
            attempts: 1,
            failed_at: "never",
            origin: "",
            task: task() as Task,
          },
          origin,
        ),
        { [HEADER.deadLetterId]: Buffer.from("a\0b"), [HEADER.originalOffset]: LARGEST },
      ),
  },
];

describe.skipIf(!kafkaHere()).concurrent("a record that another program wrote", { timeout: 120_000 }, () => {
  test.each(CASES)("$what blocks no other", async ({ topic, record, reader }) => {
    await using under = await kafkaBoard({ partitions: 1 });
    const heard = new Heard();
    const options = { agents: [rules("agent")], route: routeByTags, observer: heard };
    const board = await under.open(options);
    const names = topicNames({ prefix: under.prefix });
    const worker = new Worker("agent", (given) => {
      if (payloadOf(given) !== 1) return dead("poison");
      return given.attempt === 1 ? retry(1_000) : done();
    });
    const kafka = await openKafkaClient({ bootstrap: under.bootstrap, clientId: "foreign" });
    const producer = kafka.producer({ properties: { "message.max.bytes": 20_000_000 } });
    await producer.connect();
    await producer.send({ topic: topic(names), messages: [{ ...record(), partition: 0 }] });
    await producer.disconnect();
    await using _ = start(worker, board);
    const good = range(1, 5).map(() => makeTestArtifact({ to: "agent", payload: 1 }));
    // Each goes through the router, the agent's tasks and a retry topic.
    await board.publish(good);
    await eventually(() =>
      expect(
        heard.settledBy("agent").filter(({ task: { attempt } }) => attempt === 2).length,
      ).toBeGreaterThanOrEqual(5),
    );
    if (reader)
      await eventually(async () => {
        const { deadLetters } = await board.deadLetters(reader, { orgs: ["acme", NO_ORG], limit: 10 });
        expect(deadLetters).toMatchObject([{ failure: { class: "UnreadableRecord" } }]);
      });
    for (const { id } of good) expect(await board.get("acme", id)).toMatchObject({ id });
    await eventually(async () => expect((await board.lag()).every(({ lag }) => lag === "0")).toBe(true));
    for (const letter of (await board.deadLetters("agent", { orgs: ["acme", NO_ORG], limit: 10 }))
      .deadLetters) {
      expect(letter.id).toMatch(/^[\w-]+$/);
      expect(letter.failed_at).not.toBe("never");
    }
    expect(under.warnings.filter((line) => line.includes("unhandled"))).toEqual([]);
  });
});
