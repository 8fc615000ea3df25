import { KhalaError } from "@khala/contracts";
import { createCollection, createLiveQueryCollection, eq } from "@tanstack/db";
import { beforeEach, expect, expectTypeOf, test } from "vitest";
import { settled } from "../conversation/test_support.ts";
import { type HandDocuments, handClient } from "../react/test_support.ts";
import { khalaCollectionOptions } from "./tanstack_db.ts";

let hand: ReturnType<typeof handClient>;
beforeEach(() => {
  hand = handClient();
});

const notes = () => createCollection(khalaCollectionOptions({ client: hand.client, topic: "notes" }));

/** Lets the plane notify its listeners. */
async function told(work: Promise<void>): Promise<void> {
  await work;
  await settled();
  hand.environment.pass(20);
}

test("a collection contains the documents of the topic, and every change", async () => {
  const collection = notes();
  const loading = collection.preload();
  await settled();
  await told(hand.topics.replace("notes", { a: { text: "A" }, b: { text: "B" } }));
  await loading;
  expectTypeOf(collection.get("a")?.data).toEqualTypeOf<HandDocuments["notes"] | undefined>();
  expect(collection.toArray.map(({ key, data }) => [key, data.text])).toEqual([
    ["a", "A"],
    ["b", "B"],
  ]);
  const changes: string[] = [];
  const subscription = collection.subscribeChanges(
    (messages) => {
      for (const { type, key } of messages) changes.push(`${type} ${key}`);
    },
    { includeInitialState: true },
  );
  await told(hand.topics.set("notes", "a", 2, { text: "A2" }));
  await told(hand.topics.set("notes", "b", 2, undefined));
  await told(hand.topics.set("notes", "c", 1, { text: "C" }));
  expect(changes).toEqual(["insert a", "insert b", "update a", "delete b", "insert c"]);
  expect(collection.get("a")?.data.text).toBe("A2");
  subscription.unsubscribe();
});

test("a live query over the collection updates", async () => {
  const collection = notes();
  const open = createLiveQueryCollection((query) =>
    query
      .from({ note: collection })
      .where(({ note }) => eq(note.data.done, false))
      .select(({ note }) => ({ key: note.key, text: note.data.text })),
  );
  const loading = open.preload();
  await settled();
  await told(hand.topics.replace("notes", { a: { text: "A", done: false }, b: { text: "B", done: true } }));
  await loading;
  expect(open.toArray.map(({ text }) => text)).toEqual(["A"]);
  await told(hand.topics.set("notes", "b", 2, { text: "B", done: false }));
  expect(open.toArray.map(({ text }) => text)).toEqual(["A", "B"]);
});

test("unsubscribes from the topic when the collection is cleaned up", async () => {
  const collection = notes();
  const loading = collection.preload();
  await settled();
  await told(hand.topics.replace("notes", {}));
  await loading;
  expect(hand.topics.sinks("notes")).toHaveLength(1);
  await collection.cleanup();
  hand.environment.pass(5_000);
  expect(hand.topics.sinks("notes")).toHaveLength(0);
});

test("a forbidden topic fails the collection with the reason", async () => {
  const collection = notes();
  const loading = collection.preload();
  await settled();
  for (const sink of hand.topics.sinks("notes"))
    sink.phase("forbidden", new KhalaError("forbidden_topic", "Not yours."));
  await settled();
  await expect(loading).rejects.toMatchObject({ code: "forbidden_topic" });
});
