import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { alterTopic } from "@khala/test-support/kafka/topics";
import { eventually } from "@khala/test-support/kit/eventually";
import { until } from "@khala/test-support/kit/until";
import { describe, expect, test } from "vitest";

import { artifact, openStage, type Stage, task } from "../test_support.ts";
import { LogLookup } from "../topics/log_lookup.ts";
import { openLogReader } from "../topics/log_reader.ts";
import { byIdKey, byIdRecord, processedRecord, taskRecord } from "../topics/records.ts";
import { ArtifactIndex, BodyCache } from "./artifact_index.ts";
import type { Views } from "./views.ts";

const lagOf = async (views: Views, reader: string) =>
  (await views.lag()).filter((each) => each.reader === reader).map(({ lag, lag_high }) => [lag, lag_high]);

/** Reads a topic by its group, as the router does, and commits behind the last record. */
async function readAll(stage: Stage, topic: string, groupId: string, records: number): Promise<void> {
  const consumer = stage.client.consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic] });
  let seen = 0;
  await consumer.run({
    async eachBatch({ batch }) {
      const { partition } = batch;
      await consumer.commitOffsets([{ topic, partition, offset: String(Number(batch.lastOffset()) + 1) }]);
      seen += batch.messages.length;
    },
  });
  await eventually("all are read", () => seen >= records);
  await consumer.disconnect();
}

/** Removes an artifact from the compacted index. */
const tombstone = ({ org_id, id }: { org_id: string; id: string }) => ({
  key: byIdKey(org_id, id),
  value: null,
});

describe.runIf(kafkaHere()).concurrent("results", () => {
  test("after a restart, finds the newest version of an artifact, and not a removed one", async () => {
    await using stage = await openStage();
    const publisher = stage.publisher(await stage.views());
    const [kept, gone] = [artifact(), artifact()];
    await publisher.publish([kept]);
    await publisher.publish([{ ...kept, version: 2 }]);
    await publisher.publish([gone]);
    await stage.write(stage.names.byId, tombstone(gone));
    const restarted = await stage.views();
    expect((await restarted.get("acme", kept.id))?.version).toBe(2);
    expect(await restarted.get("acme", gone.id)).toBeUndefined();
    expect((await restarted.recent({ org: "acme", limit: 1 })).map(({ id }) => id)).toEqual([kept.id]);
    expect(restarted.size).toBe(1);
    expect(Object.fromEntries(restarted.storedBytes())).toEqual({
      acme: JSON.stringify({ ...kept, version: 2 }).length,
    });
  });

  test("the index sees removals and changes made during its rebuild", async () => {
    await using stage = await openStage();
    const drafts = Array.from({ length: 5_000 }, () => artifact({ payload: "x".repeat(200) }));
    await stage.write(stage.names.byId, ...drafts.map((draft) => byIdRecord(draft)));
    const opening = stage.views();
    const changed = { ...drafts[4_999]!, version: 2 };
    await stage.write(stage.names.byId, tombstone(drafts[0]!), byIdRecord(changed));
    const views = await opening;
    await eventually(
      "the deletion",
      async () => (await views.get(drafts[0]!.org_id, drafts[0]!.id)) === undefined,
    );
    await eventually(
      "the new version",
      async () => (await views.get(changed.org_id, changed.id))?.version === 2,
    );
    expect(views.size).toBe(4_999);
  });

  test("reads bodies that are not in memory from the log", async () => {
    await using stage = await openStage({ indexBytes: 1_000 });
    const drafts = Array.from({ length: 40 }, (_, i) => artifact({ payload: { i, text: "y".repeat(300) } }));
    await stage.publisher(await stage.views()).publish(drafts);
    const views = await stage.views();
    expect(await Promise.all(drafts.map(({ id }) => views.get("acme", id)))).toEqual(drafts);
    expect(await views.recent({ org: "acme", limit: 40 })).toHaveLength(40);
  });

  test("ignores duplicates and compaction: null deletes, an empty string does not", {
    timeout: 120_000,
  }, async () => {
    await using stage = await openStage({ partitions: 1, indexBytes: 1_000 });
    const { context, settings, names } = stage;
    const topic = names.byId;
    const [kept, gone, other] = [artifact(), artifact(), artifact()];
    const views = await stage.views();
    await stage.write(topic, byIdRecord(kept), byIdRecord(gone), byIdRecord(other));
    for (let version = 1; version <= 20; version++)
      await stage.write(topic, byIdRecord({ ...kept, version }), byIdRecord({ ...kept, version }));
    await stage.write(topic, byIdRecord(gone), tombstone(gone), tombstone(gone));
    await stage.write(topic, { key: kept.id, value: "" }, { key: kept.id, value: "{" });
    await eventually("the last version", async () => (await views.get(kept.org_id, kept.id))?.version === 20);

    const reader = () => openLogReader(context, settings.kafka, `${settings.prefix}views`);
    const lookup = new LogLookup(context, reader);
    const end = 48;
    const before = await lookup.range({ topic, partition: 0, offset: 0 }, end);
    await alterTopic(settings.kafka, topic, {
      "min.cleanable.dirty.ratio": "0.01",
      "segment.ms": "100",
      "max.compaction.lag.ms": "100",
    });
    const first = async () => {
      // The active segment is not compacted: the next record starts another one.
      await stage.write(topic, byIdRecord({ ...kept, version: 20 }));
      return lookup.record({ topic, partition: 0, offset: 0 });
    };
    await until("compaction", async () => (await first())!.at === 2, { deadlineMs: 90_000 });
    const after = await lookup.range({ topic, partition: 0, offset: 0 }, end);
    expect(before).toHaveLength(end);
    expect(after.length).toBeLessThan(10);

    const found = [{ ...kept, version: 20 }, undefined, other];
    const ids = [kept, gone, other].map(({ id }) => id);
    const restarted = await stage.views();
    expect(await Promise.all(ids.map((id) => restarted.get("acme", id)))).toEqual(found);
    // The position of a reader at the third record when the first two were compacted away.
    const looked = [];
    for (const id of ids) {
      const index = new ArtifactIndex(context, {
        topic,
        bodies: new BodyCache(0),
        lookup: (position) => lookup.record(position),
        async fresh() {
          const now = await lookup.range({ topic, partition: 0, offset: 0 }, Number.MAX_SAFE_INTEGER);
          for (const record of now) index.onRecord(record);
        },
      });
      for (const record of before.slice(0, 3)) index.onRecord(record);
      looked.push(await index.get(byIdKey("acme", id)));
    }
    await lookup.stop();
    expect(looked).toEqual(found);
  });

  test("keeps a payload of null", async () => {
    await using stage = await openStage();
    const views = await stage.views();
    const empty = artifact({ payload: null });
    await stage.publisher(views).publish([empty]);
    expect(await (await stage.views()).get("acme", empty.id)).toEqual(empty);
  });

  test("ignores aborted transactions", async () => {
    await using stage = await openStage();
    const views = await stage.views();
    const ghost = artifact({ correlation_id: "c" });
    const failed = stage.producers.transaction(async ({ send }) => {
      await send([
        { topic: stage.names.byId, record: byIdRecord(ghost) },
        { topic: stage.names.artifacts, record: byIdRecord(ghost) },
        { topic: stage.names.tasks("reviewer"), record: taskRecord(task({ artifacts: [ghost] })) },
      ]);
      throw new Error("the work failed");
    });
    await expect(failed).rejects.toThrow("the work failed");
    expect(await views.get(ghost.org_id, ghost.id)).toBeUndefined();
    expect(await views.recent({ org: "acme", limit: 9 })).toEqual([]);
    expect(await views.correlations([{ org: "acme", name: "c" }])).toEqual([]);
    const restarted = await stage.views();
    expect(await restarted.get("acme", ghost.id)).toBeUndefined();
    expect(await restarted.recent({ org: "acme", limit: 9 })).toEqual([]);
  });

  test("the window is bounded, newest first, filtered by type, and separate for each org", async () => {
    await using stage = await openStage({ indexWindow: 5 });
    const views = await stage.views();
    const publisher = stage.publisher(views);
    const drafts = Array.from({ length: 12 }, (_, i) =>
      artifact({ payload: i, type: i % 2 ? "Odd" : "Even" }),
    );
    for (const draft of drafts) await publisher.publish([draft]);
    const payloads = async (from: Views, type?: string) =>
      (await from.recent({ org: "acme", limit: 9, ...(type && { type }) })).map(({ payload }) => payload);
    expect(await payloads(views)).toEqual([11, 10, 9, 8, 7]);
    expect(await payloads(await stage.views(), "Odd")).toEqual([11, 9, 7]);
    await publisher.publish([artifact({ org_id: "other" })]);
    expect(await views.recent({ org: "other", limit: 9 })).toHaveLength(1);
    expect(await views.recent({ org: "nobody", limit: 9 })).toEqual([]);
  });

  test("lag counts readable records, lag_high also those of open transactions, and neither counts markers", async () => {
    await using stage = await openStage({ partitions: 1 });
    const { names } = stage;
    const views = await stage.views();
    const publisher = stage.publisher(views);
    await publisher.publish([artifact()]);
    await publisher.publish([artifact(), artifact()]);
    await eventually("all three", async () => (await lagOf(views, "router"))[0]?.[0] === "3");
    await readAll(stage, names.artifacts, names.routerGroup, 3);
    await eventually("no lag", async () => (await lagOf(views, "router"))[0]?.[0] === "0");
    expect(await lagOf(views, "reviewer")).toEqual([["0", "0"]]);
    const held = Promise.withResolvers<void>();
    const sent = Promise.withResolvers<void>();
    const open = stage.producers.transaction(async ({ send }) => {
      await send([{ topic: names.artifacts, record: byIdRecord(artifact()) }]);
      sent.resolve();
      await held.promise;
    });
    await sent.promise;
    // The record is on its way: only the commit confirms its arrival.
    await eventually("it is held back", async () => (await lagOf(views, "router"))[0]?.[1] === "1");
    const meanwhile = await lagOf(views, "router");
    held.resolve();
    await open;
    expect(meanwhile).toEqual([["0", "1"]]);
    await eventually("one more", async () => (await lagOf(views, "router"))[0]?.[0] === "1");
  });

  test("counts a record once, however often and in whatever order it is read", async () => {
    await using stage = await openStage();
    const { names } = stage;
    const views = await stage.views();
    const drafts = [artifact({ correlation_id: "c" }), artifact({ correlation_id: "c" })];
    await stage.publisher(views).publish(drafts);
    const works = drafts.map((draft) => task({ artifacts: [draft] }));
    const position = { topic: names.tasks("reviewer"), partition: 1, offset: "7" };
    const done = processedRecord(works[0]!, "done", position, new Date(0).toISOString());
    await stage.write(names.processed, done, done);
    await stage.write(
      names.tasks("reviewer"),
      ...works.map((work) => taskRecord(work)),
      taskRecord(works[1]!),
    );
    const counts = { artifacts: 2, open: 1, retrying: 0, done: 1, dead: 0 };
    const expected = { correlationId: "c", org: "acme", ...counts };
    await eventually("all topics", async () => {
      const [counts] = await views.correlations(["c", "unknown"].map((name) => ({ org: "acme", name })));
      return counts?.open === 1 && counts.done === 1;
    });
    expect(await views.correlations(["c", "unknown"].map((name) => ({ org: "acme", name })))).toEqual([
      expected,
    ]);
    expect(await (await stage.views()).correlations([{ org: "acme", name: "c" }])).toEqual([expected]);
  });
});
