import { randomUUID } from "node:crypto";
import type { Artifact } from "@khala/server";
import { expect } from "vitest";
import { openClusterOffsets } from "../../../kafka/src/client/cluster_offsets.ts";
import { type LogRecord, openLogReader } from "../../../kafka/src/topics/log_reader.ts";
import { topicNames } from "../../../kafka/src/topics/topics.ts";
import { idempotencyKey, type Task } from "../../../server/src/blackboard/model/task.ts";
import type { Context } from "../../../server/src/kit/context.ts";
import { testContext } from "../kit/context.ts";
import { until } from "../kit/until.ts";

/** All committed records in the topics of a board, in the order of each partition: duplicates are visible. */
export interface BoardRecords {
  readonly artifacts: readonly Artifact[];
  readonly tasks: readonly Task[];
  /** The marks of tasks that were settled. */
  readonly marks: readonly { readonly key: string; readonly result: "done" | "dead" }[];
  /** The tasks of dead letters. */
  readonly dead: readonly Task[];
}

const DEADLINE_MS = 120_000;

/** Reads the topics of a board from their beginning, as soon as no transaction is open. */
export async function readBoard(
  bootstrap: string,
  prefix: string,
  agents: readonly string[],
): Promise<BoardRecords> {
  const names = topicNames({ prefix });
  const tasks = agents.map(names.tasks);
  const dead = agents.map(names.deadLetters);
  const context = await testContext();
  const records = await readTopics(context, bootstrap, [names.artifacts, names.processed, ...tasks, ...dead]);
  await context.telemetry.shutdown();
  const of = <T>(...topics: string[]) =>
    records.filter(({ topic }) => topics.includes(topic)).map(({ value }) => JSON.parse(String(value)) as T);
  const marks = records
    .filter(({ topic }) => topic === names.processed)
    .map(({ key, value }) => ({ key: String(key), result: JSON.parse(String(value)).result as string }));
  return {
    artifacts: of<Artifact>(names.artifacts),
    tasks: of<Task>(...tasks),
    // Other records mark a task that waits for its next attempt.
    marks: marks.filter((mark): mark is BoardRecords["marks"][number] => mark.result !== "waits"),
    dead: of<Task>(...dead),
  };
}

async function readTopics(
  context: Context,
  bootstrap: string,
  topics: readonly string[],
): Promise<LogRecord[]> {
  const kafka = { bootstrap, clientId: "count" };
  const offsets = await openClusterOffsets(context, kafka);
  const reader = await openLogReader(context, kafka, `count.${randomUUID()}`);
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  try {
    const ends = await until(
      "no transaction is open",
      async () => {
        const stable = await offsets.list(topics, "stable", { patient: true });
        const high = await offsets.list(topics, "high", { patient: true });
        return JSON.stringify(flat(stable)) === JSON.stringify(flat(high)) && flat(high);
      },
      { deadlineMs: DEADLINE_MS },
    );
    const left = new Map(ends.map(({ topic, partition, offset }) => [`${topic}/${partition}`, offset]));
    reader.assign(ends.map(({ topic, partition }) => ({ topic, partition, offset: 0 })));
    const records: LogRecord[] = [];
    while (left.size > 0) {
      deadline.throwIfAborted();
      const poll = await reader.poll(1_000, 1_000, deadline);
      records.push(...poll.records);
      for (const { topic, partition, offset } of poll.ends)
        if (offset >= left.get(`${topic}/${partition}`)!) left.delete(`${topic}/${partition}`);
    }
    return records;
  } finally {
    await reader.close();
    await offsets.stop();
  }
}

/** The end offsets of partitions; empty partitions are left out. */
function flat(ends: ReadonlyMap<string, ReadonlyMap<number, number>>) {
  return [...ends].flatMap(([topic, partitions]) =>
    [...partitions].flatMap(([partition, offset]) => (offset > 0 ? [{ topic, partition, offset }] : [])),
  );
}

/**
 * Checks that every artifact is in the log once, was routed once and settled once. `resent` names those that their
 * publisher sent more than once: the log may have a copy, and a task, for each of these.
 */
export function expectOnce(
  { artifacts, tasks, marks, dead }: BoardRecords,
  resent: ReadonlySet<string> = new Set(),
): void {
  const copies = counted(artifacts.map(({ id, version }) => `${id}@${version}`));
  const twice = (counts: ReadonlyMap<string, number>) => [...counts].filter(([, count]) => count > 1);
  expect(
    twice(copies).filter(([key]) => !resent.has(key.split("@")[0]!)),
    "artifacts that are in the log more than once",
  ).toEqual([]);

  const routed = counted(tasks.map(attemptOf));
  const wrong = tasks.filter((task) => {
    const [{ id, version }] = task.artifacts;
    return routed.get(attemptOf(task)) !== copies.get(`${id}@${version}`);
  });
  expect(wrong.map(attemptOf), "tasks that are in their topic more often than their artifact").toEqual([]);

  expect(twice(counted(marks.map(({ key }) => key))), "tasks that were settled more than once").toEqual([]);
  expect(marks.map(({ key }) => key).sort(), "the tasks that were settled").toEqual(
    [...new Set(tasks.map(idempotencyKey))].sort(),
  );
  const buried = marks.filter(({ result }) => result === "dead").map(({ key }) => key);
  expect(dead.map(idempotencyKey).sort(), "the dead letters").toEqual(buried.sort());
}

const attemptOf = (task: Task) => `${idempotencyKey(task)} attempt ${task.attempt}`;

function counted(keys: readonly string[]): Map<string, number> {
  return new Map([...Map.groupBy(keys, (key) => key)].map(([key, all]) => [key, all.length]));
}
