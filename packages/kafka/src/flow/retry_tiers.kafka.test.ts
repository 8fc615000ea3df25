import { NO_ORG, ROUTER } from "@khala/server/blackboard";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { readTopic } from "@khala/test-support/kafka/topics";
import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { describe, expect, test } from "vitest";
import { listTopics } from "../client/client.ts";
import { openClusterOffsets } from "../client/cluster_offsets.ts";
import type { Producers } from "../producers/producers.ts";
import { openStage, type Stage, task } from "../test_support.ts";
import { decodeTask } from "../topics/decoding.ts";
import { dueHeader, HEADER } from "../topics/record_headers.ts";
import { type Outgoing, retryRecord } from "../topics/records.ts";
import { largestTask } from "../topics/topics.ts";
import { startRetryTier } from "./retry_tiers.ts";

const DELAY_MS = 60_000;
/** Records of a partition that may wait in memory, and those that are taken at a time. */
const [MAX_WAITING, BATCH] = [500, 100];
const failure = { class: "Error", message: "not yet", kind: "retryable" } as const;
const origin = { topic: "flock.tasks.reviewer", partition: 0, offset: "7", timestamp: 7 };

/** A task that waits until then, in one partition. */
function waiting(partition: number, dueAt: number) {
  const next = task({ attempt: 2 });
  return { id: next.id, record: { ...retryRecord(next, failure, origin, dueAt), partition } };
}

/** The reader of the retry topic, on a clock that the test puts forward. `moved` gets everything it writes. */
async function openTier(
  stage: Stage,
  clock: JumpClock,
  delayMs: number,
  moved: (records: readonly Outgoing[]) => void,
): Promise<AsyncDisposable> {
  const { settings, names } = stage;
  const parts = new AsyncDisposableStack();
  const context = await testContext({ clock });
  const offsets = await openClusterOffsets(context, settings.kafka);
  parts.defer(() => offsets.stop());
  const producers: Producers = {
    ...stage.producers,
    transaction: (work) =>
      stage.producers.transaction((transaction) =>
        work({
          ...transaction,
          send(records) {
            moved(records);
            return transaction.send(records);
          },
        }),
      ),
  };
  const failures: Error[] = [];
  const tier = await startRetryTier(context, {
    membership: {
      kafka: settings.kafka,
      offsets,
      readCommitted: true,
      sessionTimeoutMs: 30_000,
      heartbeatMs: 300,
    },
    producers,
    names,
    delayMs,
    delaysMs: [delayMs],
    maxTaskBytes: largestTask(settings),
    topics: [],
    listTopics: () => listTopics(settings.kafka),
    observer: {},
    onFailure: (error) => failures.push(error),
  });
  parts.defer(() => tier.stop());
  parts.defer(() => expect(failures).toEqual([]));
  return parts;
}

/** The tasks returned to their agent's topic, in the order of each partition. */
async function back(stage: Stage, count: number): Promise<string[]> {
  const records = await readTopic(stage.client, stage.names.tasks("reviewer"), count);
  return records.map((record) => {
    const decoded = decodeTask(record);
    return decoded.ok ? decoded.value.id : "";
  });
}

describe.runIf(kafkaHere()).concurrent("a retry topic", { timeout: 120_000 }, () => {
  test("holds a bounded number of records in memory, and reads the others when they are due", async () => {
    await using stage = await openStage({ partitions: 2, retryDelaysMs: [DELAY_MS] });
    const clock = new JumpClock();
    const topic = stage.names.retry(DELAY_MS);
    const late = Array.from({ length: 3 * MAX_WAITING }, () => waiting(0, clock.now() + DELAY_MS));
    await stage.write(topic, ...late.map(({ record }) => record));
    const sizes: number[] = [];
    await using _ = await openTier(stage, clock, DELAY_MS, (records) => sizes.push(records.length));
    // Those of the other partition are due: records of the first one would be read meanwhile if it were not paused.
    const early: string[] = [];
    for (let round = 0; round < 10; round++) {
      const due = waiting(1, clock.now());
      await stage.write(topic, due.record);
      early.push(due.id);
      await eventually("it moves on", () => sizes.length === early.length);
    }
    clock.jump(DELAY_MS);
    const ids = await back(stage, late.length + early.length);
    expect(ids.toSorted()).toEqual([...late.map(({ id }) => id), ...early].toSorted());
    expect(Math.max(...sizes)).toBeLessThan(MAX_WAITING + BATCH);
    // The first batch it moved was as large as it may hold.
    expect(Math.max(...sizes)).toBeGreaterThanOrEqual(MAX_WAITING);
  });

  test("waits in a topic several times when the delay is longer than any topic's", async () => {
    await using stage = await openStage({ partitions: 1, retryDelaysMs: [DELAY_MS] });
    const clock = new JumpClock();
    const dueAt = clock.now() + 2.5 * DELAY_MS;
    const next = waiting(0, dueAt);
    await stage.write(stage.names.retry(DELAY_MS), next.record);
    const moves: { readonly topic: string; readonly at: number }[] = [];
    await using _ = await openTier(stage, clock, DELAY_MS, (records) =>
      moves.push(...records.map(({ topic }) => ({ topic, at: clock.now() }))),
    );
    clock.jump(DELAY_MS);
    await eventually("it has waited for as long as the topic lets it", () => moves.length > 0);
    clock.jump(1.5 * DELAY_MS);
    expect(await back(stage, 1)).toEqual([next.id]);
    const { topic, at } = moves.pop()!;
    expect(topic).toBe(stage.names.tasks("reviewer"));
    expect(at).toBeGreaterThanOrEqual(dueAt);
    expect(moves.length).toBeGreaterThan(0);
    for (const each of moves) expect(each.topic).toBe(stage.names.retry(DELAY_MS));
  });

  test("makes an undecodable record a dead letter, and continues with the next ones", async () => {
    await using stage = await openStage({ partitions: 1, retryDelaysMs: [DELAY_MS] });
    const clock = new JumpClock();
    const good = waiting(0, clock.now());
    const raw = Buffer.from([0xff, 0x00, 0x7b]);
    const bad = [
      { key: "k", value: raw, headers: dueHeader(0) },
      { key: "k", value: null, headers: dueHeader(0) },
      // A readable task with an unreadable due time.
      { ...good.record, headers: { ...good.record.headers, [HEADER.due]: "soon" } },
      { key: "k", value: good.record.value },
    ];
    await stage.write(stage.names.retry(DELAY_MS), ...bad, good.record);
    await using _ = await openTier(stage, clock, DELAY_MS, () => {});
    expect(await back(stage, 1)).toEqual([good.id]);
    const views = await stage.views();
    const { deadLetters } = await views.deadLetters(ROUTER, { orgs: ["acme", NO_ORG], limit: 10 });
    expect(deadLetters.toReversed()).toMatchObject([
      { raw: raw.toString("base64"), failure: { class: "UnreadableRecord" } },
      { raw: "", failure: { message: "The record has no value." } },
      { task: { id: good.id }, failure: { class: "UnreadableRecord" } },
      { task: { id: good.id }, failure: { class: "UnreadableRecord" } },
    ]);
    const records = await readTopic(stage.client, stage.names.deadLetters(ROUTER), bad.length);
    expect(records.map(({ value }) => value && String(value))).toEqual(
      bad.map(({ value }) => value && String(value)),
    );
  });
});
