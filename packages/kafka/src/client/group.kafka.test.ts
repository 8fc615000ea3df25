import { randomUUID } from "node:crypto";
import { sleep } from "@khala/server/blackboard";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { patientClock, testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { describe, expect, test } from "vitest";
import { openStage, type Stage } from "../test_support.ts";
import type { WatchedKafka } from "./broker_watch.ts";
import type { OffsetOwner } from "./client_types.ts";
import { openClusterOffsets } from "./cluster_offsets.ts";
import { type Batch, joinGroup, type Membership } from "./group.ts";
import { openPlainAdmin } from "./plain_admin.ts";

/** A member of a group of its own, without handlers. */
function memberOf({ names }: Stage) {
  return {
    groupId: `${names.routerGroup}-${randomUUID()}`,
    topics: [names.artifacts],
    batch: 10,
  };
}

function membership(kafka: WatchedKafka, offsets: Membership["offsets"]): Membership {
  return { kafka, offsets, readCommitted: true, sessionTimeoutMs: 6_000, heartbeatMs: 300 };
}

/** A stage that records the warnings of leaving members. A second of their time limits takes five. */
async function openWatched(partitions: number) {
  await using parts = new AsyncDisposableStack();
  const stage = parts.use(await openStage({ partitions }));
  const warnings: string[] = [];
  const context = await testContext({ clock: patientClock, onWarning: (line) => warnings.push(line) });
  const { kafka } = stage.settings;
  const offsets = await openClusterOffsets(context, kafka);
  parts.defer(() => offsets.stop());
  const own = { ...memberOf(stage), onBatches() {}, onFailure() {} };
  const closing = parts.move();
  const member = membership(kafka, offsets);
  return { context, kafka, member, own, warnings, [Symbol.asyncDispose]: () => closing.disposeAsync() };
}

/** Removes the members, so that the group continues without them. */
async function removeMembers({ settings }: Stage, groupId: string): Promise<void> {
  const admin = await openPlainAdmin(settings.kafka);
  await admin.removeMembersFromConsumerGroup({ groupId });
  await admin.close();
}

function offsetsOf(batches: readonly Batch[]): number[] {
  return batches.flatMap(({ records }) => records.map(({ at }) => at));
}

describe.runIf(kafkaHere()).concurrent("a member of a group", () => {
  test("leaves at any moment of its join, alone and while others join", {
    timeout: 120_000,
  }, async () => {
    await using watched = await openWatched(2);
    const { context, member, own, warnings } = watched;
    const join = () => joinGroup(context, member, own);
    // From hardly begun to just before its assignment.
    for (const ms of [0, 10, 25, 40, 60]) {
      const alone = await join();
      await sleep(context.clock, ms);
      await alone.leave();
      // The second member gets partitions while it is leaving.
      const members = await Promise.all([join(), join()]);
      await sleep(context.clock, ms);
      for (const member of members) await member.leave();
    }
    expect(warnings.filter((line) => line.includes("did not leave"))).toEqual([]);
  });

  test("leaves its group, also during a rebalance", {
    timeout: 120_000,
  }, async () => {
    await using watched = await openWatched(1);
    const { context, kafka, member, own, warnings } = watched;
    const admin = await openPlainAdmin(kafka);
    const members = async () =>
      (await admin.describeGroups({ groups: [own.groupId] })).get(own.groupId)?.members.size;
    const join = async (heartbeatMs: number) => {
      const told = Promise.withResolvers<void>();
      const joined = await joinGroup(
        context,
        { ...member, sessionTimeoutMs: 60_000 },
        { ...own, properties: { "heartbeat.interval.ms": heartbeatMs }, onAssign: () => told.resolve() },
      );
      return { ...joined, told: told.promise };
    };
    const owner = await join(500);
    await owner.told;
    const idle = await join(500);
    await idle.told;
    // It learns late that another joins, and until then all wait for it.
    const slow = await join(50_000);
    await slow.told;
    const newcomer = await join(500);
    await eventually("the newcomer is known", async () => (await members()) === 4);
    // The others know by now, and have rejoined.
    await sleep(context.clock, 900);
    await Promise.all([owner.leave(), idle.leave(), newcomer.leave()]);
    expect(await members()).toBe(1);
    await slow.leave();
    expect(await members()).toBe(0);
    await admin.close();
    expect(warnings).toEqual([]);
  });

  test("does not hold a thread while it waits for the broker watch", {
    timeout: 120_000,
  }, async () => {
    await using stage = await openStage({ partitions: 1 });
    const offsets = await openClusterOffsets(stage.context, stage.settings.kafka);
    const count = 6;
    let ending = 0;
    const all = Promise.withResolvers<void>();
    const end = () => {
      if (++ending === count) all.resolve();
      return all.promise;
    };
    const kafka = { ...stage.settings.kafka, watch: { add: () => ({ check() {}, end }), async stop() {} } };
    const join = () =>
      joinGroup(stage.context, membership(kafka, offsets), {
        ...memberOf(stage),
        onBatches() {},
        onFailure() {},
      });
    const members = await Promise.all(Array.from({ length: count }, join));
    await Promise.all(members.map((member) => member.leave()));
    await all.promise;
    await offsets.stop();
  });

  test("reads its uncommitted records again after it was removed from the group and rejoined", {
    timeout: 120_000,
  }, async () => {
    await using stage = await openStage({ partitions: 1 });
    const { kafka } = stage.settings;
    const offsets = await openClusterOffsets(stage.context, kafka);
    const own = memberOf(stage);
    const inHand = Promise.withResolvers<void>();
    const removed = Promise.withResolvers<void>();
    const failures: Error[] = [];
    const taken: number[] = [];
    let joined = 0;
    const member = await joinGroup(stage.context, membership(kafka, offsets), {
      ...own,
      onAssign(partitions) {
        joined += partitions.length;
      },
      async onBatches(batches) {
        inHand.resolve();
        await removed.promise;
        if (joined === 1) throw new Error("This is not a member of the group.");
        taken.push(...offsetsOf(batches));
      },
      onFailure: (error) => failures.push(error),
    });
    await stage.write(stage.names.artifacts, { key: "k", value: "{}" });
    await inHand.promise;
    await removeMembers(stage, own.groupId);
    removed.resolve();
    await eventually("it takes the record again", () => taken.length > 0);
    await member.leave();
    await offsets.stop();
    expect({ taken, failures }).toEqual({ taken: [0], failures: [] });
  });

  test("starts after the offsets of its predecessor's open transaction, once that is decided", {
    timeout: 120_000,
  }, async () => {
    await using stage = await openStage({ partitions: 1 });
    const { kafka } = stage.settings;
    const topic = stage.names.artifacts;
    const own = memberOf(stage);
    const { groupId } = own;
    await stage.write(topic, ...["a", "b", "c"].map((key) => ({ key, value: "{}" })));
    const producer = stage.client.producer({ transactionalId: groupId, transactionTimeoutMs: 60_000 });
    await producer.connect();
    const predecessor = stage.client.consumer({ groupId });
    await predecessor.connect();
    await predecessor.subscribe({ topics: [topic] });
    const pending = Promise.withResolvers<void>();
    let isFirst = true;
    await predecessor.run({
      async eachBatch() {
        if (!isFirst) return;
        isFirst = false;
        await producer.transaction();
        const partitions = [{ partition: 0, offset: "2" }];
        await producer.sendOffsets({ consumer: predecessor, topics: [{ topic, partitions }] });
        pending.resolve();
      },
    });
    await pending.promise;
    await predecessor.disconnect();
    const offsets = await openClusterOffsets(stage.context, kafka);
    const taken: number[] = [];
    let committing: Promise<void> | undefined;
    const asked: Membership["offsets"] = {
      removeMember: offsets.removeMember,
      async committed(groups, options) {
        const answer = offsets.committed(groups, options);
        // A request that waits for nothing has its answer by now: a connection answers requests in order.
        await offsets.committed(groups);
        committing ??= producer.commit();
        await committing;
        return answer;
      },
    };
    const member = await joinGroup(stage.context, membership(kafka, asked), {
      ...own,
      onBatches: (batches) => void taken.push(...offsetsOf(batches)),
      onFailure() {},
    });
    await eventually("the last record", () => taken.includes(2));
    await member.leave();
    await offsets.stop();
    await producer.disconnect();
    expect(taken).toEqual([2]);
  });

  test("a committed offset is stored when the commit resolves, also during rebalances", {
    timeout: 180_000,
  }, async () => {
    await using stage = await openStage({ partitions: 1 });
    const { kafka } = stage.settings;
    const offsets = await openClusterOffsets(stage.context, kafka);
    const own = { ...memberOf(stage), batch: 1 };
    const count = 60;
    const topic = stage.names.artifacts;
    await stage.write(topic, ...Array.from({ length: count }, () => ({ key: "k", value: "{}" })));
    const committed: [said: number, is: number | undefined][] = [];
    const taking = Promise.withResolvers<void>();
    const take = async (owner: OffsetOwner, [batch]: readonly Batch[]) => {
      const next = batch!.records[0].at + 1;
      await owner.commitOffsets([{ topic, partition: batch!.partition, offset: String(next) }]);
      const found = await offsets.committed([own.groupId]);
      committed.push([next, found.get(own.groupId)?.get(topic)?.get(batch!.partition)]);
      taking.resolve();
    };
    const join = async () => {
      const member = await joinGroup(stage.context, membership(kafka, offsets), {
        ...own,
        onBatches: (batches) => take(member.owner, batches),
        onFailure() {},
      });
      return member;
    };
    const stays = await join();
    await taking.promise;
    while (committed.length < count) await (await join()).leave();
    await stays.leave();
    await offsets.stop();
    expect(committed).toEqual(Array.from({ length: count }, (_, i) => [i + 1, i + 1]));
  });
});
