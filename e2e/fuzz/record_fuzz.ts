import { openKafkaClient } from "../../packages/kafka/src/client/client.ts";
import type { KafkaProducer, NewRecord } from "../../packages/kafka/src/client/client_types.ts";
import { HEADER } from "../../packages/kafka/src/topics/record_headers.ts";
import {
  artifactRecord,
  byIdRecord,
  deadLetterRecord,
  processedRecord,
  retryRecord,
  taskRecord,
  waitingRecord,
} from "../../packages/kafka/src/topics/records.ts";
import type { Artifact } from "../../packages/server/src/blackboard/model/artifact.ts";
import type { Task } from "../../packages/server/src/blackboard/model/task.ts";
import type { Values } from "./values.ts";

export interface FuzzedRecords {
  /** Writes random records to random topics; resolves with how many. */
  write(values: Values): Promise<number>;
  close(): Promise<void>;
}

const AGENTS = ["writer", "reviewer", "failing", "publisher", "editor", "nobody", "no body"];
const BATCH = 10;
const HUGE_BYTES = 2_000_000;
/** Deeper than JSON.stringify can write. */
const DEEP = 20_000;

/** Opens a producer that writes to every topic of a board, past the server. */
export async function fuzzRecords(
  bootstrap: string,
  prefix: string,
  orgs: readonly string[],
): Promise<FuzzedRecords> {
  const client = await openKafkaClient({ bootstrap, clientId: "fuzz" });
  const admin = client.admin();
  await admin.connect();
  const topics = (await admin.listTopics()).filter((topic) => topic.startsWith(prefix));
  await admin.disconnect();
  const producer: KafkaProducer = client.producer({ properties: { "message.max.bytes": 10_000_000 } });
  await producer.connect();
  return {
    async write(values) {
      const topic = values.pick(topics);
      const messages = Array.from({ length: 1 + values.below(BATCH) }, () => randomRecord(values, orgs));
      // The broker refuses some, such as those without a key in a compacted topic: one by one, so that the others arrive.
      const sent = await Promise.allSettled(
        messages.map((message) => producer.send({ topic, messages: [message] })),
      );
      return sent.filter(({ status }) => status === "fulfilled").length;
    },
    close: () => producer.disconnect(),
  };
}

function randomRecord(values: Values, orgs: readonly string[]): NewRecord {
  const valid = validRecord(values, orgs);
  const value = values.chance(0.05) ? null : randomValue(values, String(valid.value));
  const key = values.chance(0.7) ? valid.key : values.chance(0.3) ? null : values.text();
  const headers = Object.fromEntries(
    Object.entries({ ...valid.headers, ...randomHeaders(values) }).filter(() => !values.chance(0.05)),
  );
  const timestamp = String(Date.now() - values.below(2) * values.below(10 ** 12));
  return { key: key ?? null, value, headers: headers as NonNullable<NewRecord["headers"]>, timestamp };
}

function randomValue(values: Values, json: string): Buffer | string {
  const kind = values.below(20);
  if (kind === 0) return values.bytes(500);
  if (kind === 1) return Buffer.from(json).subarray(0, values.below(json.length));
  if (kind === 2) return json.replace(/"payload":/, `"payload":${"[".repeat(DEEP)}${"]".repeat(DEEP)},"x":`);
  if (kind === 3 && values.chance(0.05))
    return json.replace(/"payload":/, `"filler":"${"x".repeat(HUGE_BYTES)}","payload":`);
  if (kind < 8) return json;
  if (kind < 10) return values.damaged(json);
  return JSON.stringify(values.mutated(JSON.parse(json))) ?? "";
}

function randomHeaders(values: Values): NonNullable<NewRecord["headers"]> {
  const headers: Record<string, Buffer> = {};
  while (values.chance(0.3)) {
    const name = values.pick(Object.values(HEADER));
    const size = values.pick([0, 4, 8, 300]);
    headers[name] = values.chance(0.2)
      ? Buffer.alloc(size, values.pick([0, 0x7f, 0xff]))
      : Buffer.from(values.chance(0.5) ? values.bytes(size || 1) : values.text());
  }
  return headers;
}

/** A record as the board writes it, of any topic: each topic gets those of all others, too. */
function validRecord(values: Values, orgs: readonly string[]): NewRecord {
  const artifact = randomArtifact(values, orgs);
  const task: Task = {
    id: artifact.id,
    agent: values.pick(AGENTS),
    artifacts: values.chance(0.9) ? [artifact] : [artifact, randomArtifact(values, orgs)],
    key: values.chance(0.8) ? artifact.id : values.text() || "k",
    attempt: values.chance(0.9) ? 1 + values.below(3) : values.pick([0, 2 ** 31, 2 ** 53, -1]),
    created_at: artifact.created_at,
    ...(values.chance(0.1) && { replay_id: values.text() }),
    ...(values.chance(0.05) && { approved_by: values.text() }),
  };
  const failure = { class: "Error", message: values.text(), kind: "retryable" } as const;
  const origin = { topic: "t", partition: values.below(8), offset: "1", timestamp: Date.now() };
  const dueAt = values.chance(0.8) ? Date.now() : values.pick([0, 9e15, Date.now() + 60_000]);
  // A task that the headers cannot hold is written with the value alone.
  const headed = { ...task, attempt: Math.min(Math.max(task.attempt, 1), 100) };
  const value = JSON.stringify(task);
  switch (values.below(7)) {
    case 0:
      return artifactRecord(artifact);
    case 1:
      return byIdRecord(artifact);
    case 2:
      return taskRecord(task);
    case 3:
      return { ...retryRecord(headed, failure, origin, dueAt), value };
    case 4:
      return processedRecord(headed, values.pick(["done", "dead"]), origin, artifact.created_at);
    case 5:
      return waitingRecord(headed, dueAt, values.below(8));
    default: {
      const { agent, attempt } = headed;
      const letter = { id: values.text(), agent, failure, attempts: attempt, origin: values.text() };
      return { ...deadLetterRecord({ ...letter, failed_at: values.text(), task: headed }, origin), value };
    }
  }
}

function randomArtifact(values: Values, orgs: readonly string[]): Artifact {
  return {
    id: values.chance(0.8) ? uuid(values) : values.text() || "id",
    type: values.pick(["Topic", "Draft", "Review", "Unknown", values.text() || "T"]),
    payload: values.json() as Artifact["payload"],
    tags: values.chance(0.8) ? [] : [values.text()],
    produced_by: values.pick(["user:ada", "agent:writer", values.text() || "p"]),
    visibility: values.chance(0.8)
      ? { kind: "org" }
      : ((values.json() as Artifact["visibility"]) ?? { kind: "org" }),
    version: values.chance(0.8) ? 1 : values.pick([0, 2, 2 ** 31, 2 ** 40]),
    created_at: values.chance(0.9) ? new Date().toISOString() : values.text() || "t",
    org_id: values.chance(0.9) ? values.pick(orgs) : values.text() || "o",
    depth: values.chance(0.9) ? 0 : values.pick([-1, 2 ** 40]),
    ...(values.chance(0.5) && { correlation_id: values.chance(0.5) ? "c" : values.text() }),
    ...(values.chance(0.2) && { partition_key: values.text() }),
    ...(values.chance(0.2) && { traceparent: values.text() }),
  };
}

function uuid(values: Values): string {
  const hex = Array.from({ length: 32 }, () => values.below(16).toString(16)).join("");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-7${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
}
