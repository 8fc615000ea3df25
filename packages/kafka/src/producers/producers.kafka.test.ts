import { randomUUID } from "node:crypto";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { readTopic, values } from "@khala/test-support/kafka/topics";
import { describe, expect, test } from "vitest";
import { openStage, type Stage } from "../test_support.ts";
import { openProducers } from "./open_producers.ts";

const newName = (prefix: string) => `${prefix}-${randomUUID()}`;
/** Producers of another process with the same ids, with limits that no slow machine reaches. */
function rival({ context, client, settings }: Stage) {
  return openProducers({ ...context, clock: { ...context.clock, now: () => 0 } }, client, settings);
}
const to = (stage: Stage, ...texts: string[]) =>
  texts.map((value) => ({ topic: stage.names.artifacts, record: { key: "k", value } }));

describe.runIf(kafkaHere()).concurrent("transactions", () => {
  test("makes all records of a transaction visible together, or none", async () => {
    await using stage = await openStage();
    await stage.producers.transaction(async ({ send }) => {
      await Promise.all([send(to(stage, "a", "b")), send(to(stage, "c"))]);
    });
    const lost = stage.producers.transaction(async ({ send }) => {
      send(to(stage, "never"));
      throw new TypeError("the work failed");
    });
    await expect(lost).rejects.toThrow(new TypeError("the work failed"));
    await stage.producers.transaction(({ send }) => send(to(stage, "d")));
    expect(values(await readTopic(stage.client, stage.names.artifacts, 4))).toEqual(["a", "b", "c", "d"]);
  });

  test("aborts the transaction of a refused record, and the producer stays usable", async () => {
    await using stage = await openStage();
    const large = { topic: stage.names.processed, record: { key: "k", value: "x".repeat(2_000_000) } };
    const refused = stage.producers.transaction(({ send }) => send([...to(stage, "never"), large]));
    await expect(refused).rejects.toMatchObject({ code: "payload_too_large" });
    await stage.producers.transaction(({ send }) => send(to(stage, "after")));
    expect(values(await readTopic(stage.client, stage.names.artifacts, 1))).toEqual(["after"]);
  });

  test("runs one transaction per producer at a time, and the others wait", async () => {
    await using stage = await openStage({ producers: 2 });
    let running = 0;
    let most = 0;
    const two = Promise.withResolvers<void>();
    await Promise.all(
      Array.from({ length: 10 }, async (_, i) => {
        await stage.producers.transaction(async ({ send }) => {
          most = Math.max(most, ++running);
          if (most === 2) two.resolve();
          await two.promise;
          await send(to(stage, String(i)));
        });
        running--;
      }),
    );
    expect(most).toBe(2);
    expect(await readTopic(stage.client, stage.names.artifacts, 10)).toHaveLength(10);
  });

  test("a fenced producer writes nothing, and reports stale_producer", async () => {
    await using stage = await openStage({ producers: 1 });
    const [first, other] = [rival(stage), rival(stage)];
    const begun = Promise.withResolvers<void>();
    const taken = Promise.withResolvers<void>();
    const zombie = first.transaction(async ({ send }) => {
      await send(to(stage, "zombie"));
      begun.resolve();
      await taken.promise;
    });
    zombie.catch(() => {});
    await begun.promise;
    await other.transaction(({ send }) => send(to(stage, "owner")));
    taken.resolve();
    await expect(zombie).rejects.toMatchObject({ code: "stale_producer" });
    await other.stop();
    await first.transaction(({ send }) => send(to(stage, "later")));
    await first.stop();
    expect(values(await readTopic(stage.client, stage.names.artifacts, 2))).toEqual(["owner", "later"]);
  });

  test("two processes with one transactional id stop fencing each other, and log what to change", async () => {
    await using stage = await openStage({ producers: 1 });
    const rivals = [rival(stage), rival(stage)];
    const failures: string[] = [];
    for (let i = 0; i < 14; i++)
      for (const producers of rivals)
        await producers
          .transaction(({ send }) => send(to(stage, String(i))))
          .catch((error: Error) => failures.push(error.message));
    expect(failures).toContainEqual(expect.stringContaining("Give every process its own KAFKA_TX_ID"));
    await Promise.all(rivals.map((producers) => producers.stop()));
  });

  test("a fenced producer continues under the current id of its process", async () => {
    const [taken, fresh] = [newName("taken"), newName("fresh")];
    let own = taken;
    await using stage = await openStage({ producers: 1, transactionalId: async () => own });
    const other = openProducers(stage.context, stage.client, { ...stage.settings, transactionalId: taken });
    const ids: (string | undefined)[] = [];
    const write = async (producers: Stage["producers"], text: string) => {
      ids.push(
        await producers.transaction(async ({ id, send }) => {
          await send(to(stage, text));
          return id;
        }),
      );
    };
    await write(stage.producers, "1");
    await write(other, "2");
    own = fresh;
    await expect(write(stage.producers, "never")).rejects.toMatchObject({ code: "stale_producer" });
    for (const text of ["3", "4"]) {
      await write(stage.producers, text);
      await write(other, text);
    }
    await other.stop();
    expect(ids).toEqual([taken, taken, fresh, taken, fresh, taken].map((id) => `${id}-0`));
  });

  test("without transactions, commits offsets after the records", async () => {
    await using stage = await openStage({ transactions: false });
    const { artifacts, routerGroup } = stage.names;
    await stage.write(artifacts, { key: "k", value: "in" });
    const consumer = stage.client.consumer({ groupId: routerGroup });
    await consumer.connect();
    await consumer.subscribe({ topics: [artifacts] });
    const done = Promise.withResolvers<void>();
    await consumer.run({
      async eachBatch({ batch: { partition } }) {
        const topics = [{ topic: artifacts, partitions: [{ partition, offset: "1" }] }];
        const failing = stage.producers.transaction(async ({ sendOffsets }) => {
          await sendOffsets(consumer, topics);
          throw new Error("the work failed");
        });
        await failing.catch(() => {});
        const [before] = await consumer.committed([{ topic: artifacts, partition }]);
        await stage.producers.transaction(({ sendOffsets }) => sendOffsets(consumer, topics));
        const [after] = await consumer.committed([{ topic: artifacts, partition }]);
        if (before?.offset !== "1" && after?.offset === "1") done.resolve();
        else done.reject(new Error(`before ${before?.offset}, after ${after?.offset}`));
      },
    });
    await done.promise;
    await consumer.disconnect();
  });

  test("writes nothing after a stop", async () => {
    await using stage = await openStage();
    await stage.producers.transaction(({ send }) => send(to(stage, "a")));
    await stage.producers.stop();
    const late = stage.producers.transaction(({ send }) => send(to(stage, "b")));
    await expect(late).rejects.toMatchObject({ code: "shutting_down" });
  });
});
