import type { BoardObserver, Consumer, Settlement, Task } from "@khala/server/blackboard";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { readTopic } from "@khala/test-support/kafka/topics";
import { eventually } from "@khala/test-support/kit/eventually";
import { describe, expect, test } from "vitest";
import { type ClusterOffsets, openClusterOffsets } from "../client/cluster_offsets.ts";
import type { Membership } from "../client/group.ts";
import { openPlainAdmin, type PlainAdmin } from "../client/plain_admin.ts";
import { openProducers } from "../producers/open_producers.ts";
import type { Producers } from "../producers/producers.ts";
import { artifact, openStage, type Stage, task } from "../test_support.ts";
import { decodeArtifact } from "../topics/decoding.ts";
import { taskRecord } from "../topics/records.ts";
import { largestTask } from "../topics/topics.ts";
import { AgentSession, type SessionOptions } from "./agent_session.ts";

interface Remover extends PlainAdmin {
  removeMembersFromConsumerGroup(options: { readonly groupId: string }): Promise<void>;
}

const AGENT = "reviewer";
const ROOMY = { records: 1_000, bytes: 16_777_216, span: 10_000 };
/** Records that a session takes at a time. */
const BATCH = 250;

/** A process that works for the agent, with producers of its own. */
class Process implements AsyncDisposable {
  readonly settled: string[] = [];
  readonly ran: string[] = [];
  readonly failures: Error[] = [];
  readonly session: AgentSession;
  readonly #producers: Producers;

  constructor(
    stage: Stage,
    offsets: ClusterOffsets,
    name: string,
    handle: Consumer["handle"],
    given: Partial<SessionOptions> & {
      readonly through?: (producers: Producers) => Producers;
      readonly member?: Partial<Membership>;
    } = {},
  ) {
    const { settings, names, context } = stage;
    const { through = (producers) => producers, member, ...options } = given;
    this.#producers = openProducers(context, stage.client, {
      ...settings,
      transactionalId: name + names.byId,
    });
    const observer: BoardObserver = {
      published() {},
      routed() {},
      repeated() {},
      settled: ({ id }) => void this.settled.push(id),
    };
    const rules = {
      agent: AGENT,
      strict: false,
      names,
      maxTaskBytes: largestTask(settings),
      retryDelaysMs: settings.retryDelaysMs,
      version: () => undefined,
      wrote() {},
    };
    const groupId = names.agentGroup(AGENT);
    this.session = new AgentSession(
      context,
      {
        membership: {
          kafka: settings.kafka,
          offsets,
          readCommitted: true,
          sessionTimeoutMs: 30_000,
          heartbeatMs: 300,
          ...member,
        },
        producers: through(this.#producers),
        observer,
        rules,
        groupId,
        topic: names.tasks(AGENT),
        limits: ROOMY,
        processed: { kafka: settings.kafka, offsets, topic: names.processed, group: `${groupId}.marks` },
        drainMs: 100,
        leaveMs: 60_000,
        ...options,
      },
      {
        agent: AGENT,
        order: "none",
        strict: false,
        concurrency: 20,
        async gate() {},
        handle: (given, signal) => {
          this.ran.push(given.id);
          return handle(given, signal);
        },
      },
      (error) => this.failures.push(error),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.session.discard();
    await this.#producers.stop();
  }
}

async function openOffsets(parts: AsyncDisposableStack, stage: Stage): Promise<ClusterOffsets> {
  const offsets = await openClusterOffsets(stage.context, stage.settings.kafka);
  parts.defer(() => offsets.stop());
  return offsets;
}

/** Puts out which task it was, and who did it. */
function done(by: string) {
  return ({ id }: Task): Settlement => ({ kind: "done", outputs: [artifact({ payload: `${id} by ${by}` })] });
}

/** Tasks with keys of their own, in one partition. */
async function write(stage: Stage, partition: number, count: number): Promise<string[]> {
  const tasks = Array.from({ length: count }, () => task());
  await stage.write(stage.names.tasks(AGENT), ...tasks.map((each) => ({ ...taskRecord(each), partition })));
  return tasks.map(({ id }) => id);
}

/** The outputs visible to readers of committed records. */
async function visible(stage: Stage, count: number): Promise<unknown[]> {
  const records = await readTopic(stage.client, stage.names.artifacts, count);
  return records.map((record) => {
    const decoded = decodeArtifact(record);
    return decoded.ok && decoded.value.payload;
  });
}

/** The offset at which the next owner of a partition starts. */
async function committed(stage: Stage, offsets: ClusterOffsets, partition: number) {
  const groupId = stage.names.agentGroup(AGENT);
  const topic = stage.names.tasks(AGENT);
  const found = await offsets.committed([groupId], { stable: [{ topic, partition }] });
  return found.get(groupId)?.get(topic)?.get(partition);
}

describe.runIf(kafkaHere()).concurrent("the work of an agent", { timeout: 120_000 }, () => {
  test("aborts a settlement whose partition is revoked between its records and its offsets", async () => {
    await using parts = new AsyncDisposableStack();
    const stage = parts.use(await openStage({ partitions: 1 }));
    const offsets = await openOffsets(parts, stage);
    const sent = Promise.withResolvers<void>();
    const taken = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<unknown>();
    /** Blocks once the records are on their way. */
    const slowly = (producers: Producers): Producers => ({
      ...producers,
      transaction: (work) => {
        const settling = producers.transaction((transaction) =>
          work({
            ...transaction,
            async sendOffsets(owner, topics) {
              sent.resolve();
              await taken.promise;
              await transaction.sendOffsets(owner, topics);
            },
          }),
        );
        settling.then(() => ended.resolve("committed"), ended.resolve);
        return settling;
      },
    });
    const lost = parts.use(new Process(stage, offsets, "lost", done("lost"), { through: slowly }));
    parts.defer(() => taken.resolve());
    await lost.session.start();
    const [id] = await write(stage, 0, 1);
    await sent.promise;
    // The group continues without it, and it does not know yet.
    const admin = (await openPlainAdmin(stage.settings.kafka)) as Remover;
    await admin.removeMembersFromConsumerGroup({ groupId: stage.names.agentGroup(AGENT) });
    await admin.close();
    const owned = Promise.withResolvers<void>();
    const committed: ClusterOffsets["committed"] = (...asked) => {
      owned.resolve();
      return offsets.committed(...asked);
    };
    const kept = parts.use(
      new Process(stage, offsets, "kept", done("kept"), { member: { offsets: { ...offsets, committed } } }),
    );
    await kept.session.start();
    await owned.promise;
    taken.resolve();
    expect(await ended.promise).toBeInstanceOf(Error);
    await eventually("the new owner settles it", () => kept.settled.length > 0);
    const [last] = await write(stage, 0, 1);
    await eventually("the next is settled", () => [...kept.settled, ...lost.settled].includes(last!));
    expect([kept.settled, lost.settled].flat()).toEqual([id, last]);
    expect((await visible(stage, 2))[0]).toBe(`${id} by kept`);
    expect(await visible(stage, 2)).toHaveLength(2);
  });

  test("leaves unsettled results of a revoked partition to its next owner", async () => {
    await using parts = new AsyncDisposableStack();
    const stage = parts.use(await openStage({ partitions: 2 }));
    const offsets = await openOffsets(parts, stage);
    const go = Promise.withResolvers<void>();
    let waiting = 0;
    /** Hands out a producer only on request. */
    const busy = (producers: Producers): Producers => ({
      ...producers,
      async transaction(work) {
        waiting++;
        await go.promise;
        return producers.transaction(work);
      },
    });
    const quick = [...(await write(stage, 0, 1)), ...(await write(stage, 1, 1))];
    const slow = [...(await write(stage, 0, 1)), ...(await write(stage, 1, 1))];
    /** The slow one learns of a revoked partition. */
    const told: string[] = [];
    const lost = parts.use(
      new Process(
        stage,
        offsets,
        "lost",
        async (each, signal) => {
          if (slow.includes(each.id))
            await new Promise<void>((resolve) => {
              signal.addEventListener("abort", () => {
                told.push(each.id);
                resolve();
              });
            });
          return done("lost")(each);
        },
        { through: busy, leaveMs: 10 },
      ),
    );
    parts.defer(() => go.resolve());
    await lost.session.start();
    await eventually("both quick ones are about to be settled", () => lost.ran.length === 4 && waiting === 2);
    const kept = parts.use(new Process(stage, offsets, "kept", done("kept")));
    await kept.session.start();
    await eventually("a partition is given up", () => told.length > 0);
    const moved = quick[slow.indexOf(told[0]!)]!;
    const stays = quick.find((id) => id !== moved)!;
    go.resolve();
    await eventually("both are settled", () =>
      [moved, stays].every((id) => [...kept.settled, ...lost.settled].includes(id)),
    );
    await eventually("the new owner is done", () => kept.settled.length === 2);
    expect(kept.settled.toSorted()).toEqual([moved, told[0]!].toSorted());
    expect(lost.settled).toEqual([stays]);
    expect((await visible(stage, 3)).toSorted()).toEqual(
      [`${moved} by kept`, `${told[0]} by kept`, `${stays} by lost`].toSorted(),
    );
  });

  test("a task that does not end blocks the partition once the span limit is reached", async () => {
    await using parts = new AsyncDisposableStack();
    const stage = parts.use(await openStage({ partitions: 2 }));
    const offsets = await openOffsets(parts, stage);
    const held = Promise.withResolvers<void>();
    parts.defer(() => held.resolve());
    const span = 50;
    const behind = 2_000;
    const [first, ...rest] = await write(stage, 0, 1 + behind);
    const process = parts.use(
      new Process(
        stage,
        offsets,
        "one",
        async (each) => {
          if (each.id === first) await held.promise;
          return { kind: "done", outputs: [] };
        },
        { limits: { ...ROOMY, span } },
      ),
    );
    await process.session.start();
    await eventually("it has come to the limit", () => process.settled.length >= span - 1);
    // The other partition continues: records of the first one would be taken meanwhile if it were not paused.
    const beside = new Set<string>();
    for (let round = 0; round < 5; round++) {
      for (const id of await write(stage, 1, BATCH)) beside.add(id);
      await eventually(
        "the other partition goes on",
        () => process.settled.filter((id) => beside.has(id)).length === beside.size,
      );
    }
    const ran = process.ran.filter((id) => !beside.has(id));
    expect(ran.length).toBeLessThan(span + BATCH);
    expect(await committed(stage, offsets, 0)).toBe(0);
    held.resolve();
    await eventually("all are settled", () => process.settled.length >= 1 + behind + beside.size);
    expect(process.settled.toSorted()).toEqual([first!, ...rest, ...beside].toSorted());
    expect(process.ran).toHaveLength(process.settled.length);
    await eventually("and committed", async () => (await committed(stage, offsets, 0)) === 1 + behind);
    expect(process.failures).toEqual([]);
  });
});
