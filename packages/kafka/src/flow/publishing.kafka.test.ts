import { partitionOf } from "@khala/contracts";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { readTopic } from "@khala/test-support/kafka/topics";
import { eventually } from "@khala/test-support/kit/eventually";
import { describe, expect, test } from "vitest";
import { AGENTS, artifact, openStage, task } from "../test_support.ts";
import { decodeArtifact, decodeTask } from "../topics/decoding.ts";
import { HEADER, headerText } from "../topics/record_headers.ts";

describe.runIf(kafkaHere()).concurrent.each([true, false])("publishing, transactions %s", (transactions) => {
  test("finds an artifact by id and in the recent list, at once in this process and soon in others", async () => {
    await using stage = await openStage({ transactions });
    const [here, elsewhere] = [await stage.views(), await stage.views()];
    const publisher = stage.publisher(here);
    const draft = artifact({
      payload: { text: "Grüße 🌍", nothing: null },
      tags: ["a"],
      correlation_id: "c1",
    });
    expect(await publisher.publish([draft])).toEqual(["published"]);
    expect(await here.get("acme", draft.id)).toEqual(draft);
    expect(await here.recent({ org: "acme", limit: 10 })).toEqual([draft]);
    expect(await eventually("it is found elsewhere", () => elsewhere.get("acme", draft.id))).toEqual(draft);
    expect(await elsewhere.get("acme", "0190a000-0000-7000-8000-000000000000")).toBeUndefined();
    await eventually("the other window", async () => (await elsewhere.recent({ org: "acme", limit: 1 }))[0]);
    expect(stage.published).toEqual([draft]);
  });

  test("answers a known version or a lower one with duplicate, and publishes a higher one", async () => {
    await using stage = await openStage({ transactions });
    const views = await stage.views();
    const publisher = stage.publisher(views);
    const one = artifact();
    const two = { ...one, version: 2, payload: "two" };
    expect(await publisher.publish([one, one])).toEqual(["published", "duplicate"]);
    expect(await publisher.publish([two])).toEqual(["published"]);
    expect(await publisher.publish([one, two])).toEqual(["duplicate", "duplicate"]);
    const records = await readTopic(stage.client, stage.names.artifacts, 2);
    expect(records.map((record) => decodeArtifact(record))).toEqual([
      { ok: true, value: one },
      { ok: true, value: two },
    ]);
    expect(await views.get(one.org_id, one.id)).toEqual(two);
  });

  test("writes records to the partition of their key, with type and trace as headers", async () => {
    await using stage = await openStage({ transactions });
    const publisher = stage.publisher(await stage.views());
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const drafts = Array.from({ length: 20 }, (_, i) => artifact({ partition_key: `key-${i}`, traceparent }));
    await publisher.publish(drafts);
    const records = await readTopic(stage.client, stage.names.artifacts, 20);
    for (const record of records) {
      expect(record.partition).toBe(partitionOf(String(record.key), 2));
      expect(headerText(record, HEADER.type)).toBe("Draft");
      expect(headerText(record, HEADER.traceparent)).toBe(traceparent);
    }
    expect(new Set(records.map(({ partition }) => partition)).size).toBe(2);
  });

  test("concurrent writers share commits, and each gets its own result", async () => {
    await using stage = await openStage({ transactions });
    const views = await stage.views();
    const publisher = stage.publisher(views);
    const drafts = Array.from({ length: 200 }, () => artifact());
    const answers = await Promise.all(drafts.map((draft) => publisher.publish([draft])));
    expect(answers).toEqual(drafts.map(() => ["published"]));
    expect(
      (await Promise.all(drafts.map(({ id }) => views.get("acme", id)))).map((found) => found?.id),
    ).toEqual(drafts.map(({ id }) => id));
  });

  test("enqueues tasks for their agent, and refuses a task of an unknown agent", async () => {
    await using stage = await openStage({ transactions });
    const publisher = stage.publisher(await stage.views());
    const work = task({ agent: AGENTS[1]! });
    await publisher.enqueue([work]);
    const [record] = await readTopic(stage.client, stage.names.tasks("writer"), 1);
    expect(decodeTask(record!)).toEqual({ ok: true, value: work });
    await expect(publisher.enqueue([task({ agent: "nobody" })])).rejects.toMatchObject({ code: "not_found" });
  });

  test("publishes the largest allowed artifact, and refuses one more byte with its id", async () => {
    await using stage = await openStage({ transactions });
    const views = await stage.views();
    const publisher = stage.publisher(views);
    const empty = artifact({ payload: "", partition_key: "k" });
    const room = stage.settings.maxRecordBytes - Buffer.byteLength(`${JSON.stringify(empty)}acme:k`);
    const largest = { ...empty, payload: "x".repeat(room) };
    expect(await publisher.publish([largest])).toEqual(["published"]);
    const over = { ...artifact(), payload: "x".repeat(room + 1_000) };
    await expect(publisher.publish([artifact(), over])).rejects.toMatchObject({
      code: "payload_too_large",
      details: { items: [{ index: 1 }] },
    });
    // So is its task, which is larger.
    await publisher.enqueue([task({ artifacts: [largest] })]);
    expect(await (await stage.views()).get("acme", largest.id)).toEqual(largest);
  });
});
