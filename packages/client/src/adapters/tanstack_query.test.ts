import { KhalaError } from "@khala/contracts";
import { QueryClient, QueryObserver } from "@tanstack/query-core";
import { afterEach, beforeEach, expect, expectTypeOf, test } from "vitest";
import { settled } from "../conversation/test_support.ts";
import { type HandDocuments, handClient } from "../react/test_support.ts";
import { type LiveQueries, liveQueries } from "./tanstack_query.ts";

let hand: ReturnType<typeof handClient>;
let queryClient: QueryClient;
let queries: LiveQueries<HandDocuments>;
beforeEach(() => {
  hand = handClient();
  queryClient = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  queryClient.mount();
  queries = liveQueries(hand.client, queryClient);
});
afterEach(() => {
  queries.stop();
  queryClient.clear();
  queryClient.unmount();
});

/** Lets the plane notify its listeners. */
async function told(work: unknown): Promise<void> {
  await work;
  await settled();
  hand.environment.pass(20);
  await settled();
}

test("a query returns the document, and every change while it is observed", async () => {
  const observer = new QueryObserver(queryClient, queries.doc("notes", "a"));
  const texts: unknown[] = [];
  const stop = observer.subscribe(({ data }) => texts.push(data === null ? null : data?.text));
  await settled();
  await told(hand.topics.replace("notes", { a: { text: "one" } }));
  await told(hand.topics.set("notes", "a", 2, { text: "two" }));
  await told(hand.topics.set("notes", "b", 1, { text: "other" }));
  await told(hand.topics.set("notes", "a", 3, undefined));
  expect(texts).toEqual([undefined, "one", "two", null]);
  stop();
  hand.environment.pass(5_000);
  expect(hand.topics.sinks("notes")).toHaveLength(0);
});

test("a query returns the list, with the same objects as the sync plane", async () => {
  const options = queries.list("notes");
  expectTypeOf(options.queryFn)
    .returns.resolves.items.toHaveProperty("data")
    .toEqualTypeOf<HandDocuments["notes"]>();
  const fetched = queryClient.fetchQuery(options);
  await settled();
  await told(hand.topics.replace("notes", { b: { text: "B" }, a: { text: "A" } }));
  expect((await fetched).map(({ key }) => key)).toEqual(["a", "b"]);
  expect(await fetched).toBe(hand.client.sync.list("notes").items);
});

test("a new observer gets changes made while nothing observed the query", async () => {
  const options = queries.doc("notes", "a");
  const observer = new QueryObserver(queryClient, options);
  const stop = observer.subscribe(() => {});
  await settled();
  await told(hand.topics.replace("notes", { a: { text: "one" } }));
  stop();
  const keep = hand.client.sync.subscribe("notes", () => {});
  await told(hand.topics.set("notes", "a", 2, { text: "two" }));
  const again = new QueryObserver(queryClient, options);
  const stopAgain = again.subscribe(() => {});
  await told(undefined);
  expect(again.getCurrentResult().data).toEqual({ text: "two" });
  stopAgain();
  keep();
});

test("a forbidden topic is the query's error", async () => {
  const fetched = queryClient.fetchQuery(queries.list("notes"));
  await settled();
  for (const sink of hand.topics.sinks("notes"))
    sink.phase("forbidden", new KhalaError("forbidden_topic", "Not yours."));
  await expect(fetched).rejects.toMatchObject({ code: "forbidden_topic" });
});
