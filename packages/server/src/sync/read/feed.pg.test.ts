import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runSummaries } from "../models/runtime.ts";
import { type SyncParts, syncParts } from "../test_support.ts";
import { Feed, type Subscription } from "./feed.ts";
import { type Journal, type JournalRow, openJournal } from "./journal.ts";
import { Starts } from "./starts.ts";

let database: TestDatabase;
let parts: SyncParts;
beforeAll(async () => {
  database = await testDatabase();
  parts = await syncParts(database.database);
});
afterAll(async () => {
  await parts[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

function openFeed(journal: Journal = openJournal(database.database), tailBytes = 1 << 20): Promise<Feed> {
  const batch = { rows: 10, bytes: 1 << 20, payloadBytes: 1 << 18 };
  return Feed.open(runSummaries, parts.context, { journal, metrics: parts.metrics, batch, tailBytes });
}

const org = "org";
let written = 0;

/** Writes a document; its watermark. */
async function write(): Promise<bigint> {
  const document = {
    docKey: `run:${++written}`,
    docVersion: 1n,
    op: "upsert",
    payload: "{}",
    org,
    audience: null,
  } as const;
  return (await parts.write(runSummaries, document))[0]!.watermark!;
}

/** A socket's interest that takes frames while it has room. */
function subscriber(feed: Feed, position = feed.head) {
  const watermarks: bigint[] = [];
  const staleAt: bigint[] = [];
  const subscription: Subscription & { room: boolean } = {
    org,
    subject: "ann",
    encoding: "json",
    history: feed.history,
    position,
    live: false,
    replaying: false,
    ended: false,
    room: true,
    offer(frame) {
      if (!subscription.room) return false;
      const text = String(frame.bytes);
      for (const [, watermark] of text.matchAll(/"op":"upsert".*?"watermark":"(\d+)"/g))
        watermarks.push(BigInt(watermark!));
      return true;
    },
    stale: (sent) => staleAt.push(sent),
  };
  return { subscription, watermarks, staleAt };
}

test("a refresh requested in the turn in which another ends reads again", async () => {
  const journal = openJournal(database.database);
  let held: { rows: JournalRow[]; give: PromiseWithResolvers<JournalRow[]> } | undefined;
  let holding = false;
  const gated: Journal = {
    ...journal,
    read(...args) {
      if (!holding) return journal.read(...args);
      holding = false;
      held = { rows: [], give: Promise.withResolvers() };
      return held.give.promise;
    },
  };
  const feed = await openFeed(gated);
  holding = true;
  const first = feed.refresh();
  const watermark = await write();
  let second: Promise<void> | undefined;
  // After the reader's own turn, and before anybody who waits for the refresh.
  void held!.give.promise.then(() => {
    second = feed.refresh();
  });
  held!.give.resolve(held!.rows);
  await first;
  await second;
  expect(feed.head).toBe(watermark);
});

test("gives a row to every live subscriber from one read", async () => {
  const journal = openJournal(database.database);
  let reads = 0;
  const feed = await openFeed({
    ...journal,
    read(...args) {
      reads++;
      return journal.read(...args);
    },
  });
  const all = Array.from({ length: 50 }, () => subscriber(feed));
  for (const { subscription } of all) feed.follow(subscription);
  const watermark = await write();
  const before = reads;
  await Promise.all(all.map(() => feed.refresh()));
  expect(all.map(({ watermarks }) => watermarks)).toEqual(all.map(() => [watermark]));
  expect(reads - before).toBeLessThanOrEqual(2);
});

describe.each([
  { from: "memory", tailBytes: 1 << 20 },
  { from: "the database", tailBytes: 0 },
])("a subscriber without room pulls from $from", ({ tailBytes }) => {
  test("what it missed, once and in order, and becomes live again", async () => {
    const feed = await openFeed(undefined, tailBytes);
    const { subscription, watermarks } = subscriber(feed);
    feed.follow(subscription);
    const expected = [await write()];
    await feed.refresh();
    subscription.room = false;
    for (let i = 0; i < 25; i++) expected.push(await write());
    await feed.refresh();
    expect(subscription.live).toBe(false);
    expect(await feed.pull(subscription)).toBe(false);
    expect(watermarks).toHaveLength(1);
    subscription.room = true;
    while (!(await feed.pull(subscription)));
    expect(subscription.live).toBe(true);
    expected.push(await write());
    await feed.refresh();
    expect(watermarks).toEqual(expected);
  });

  test("nothing when it has unsubscribed, and does not become live", async () => {
    const feed = await openFeed(undefined, tailBytes);
    const { subscription, watermarks } = subscriber(feed);
    await write();
    await feed.refresh();
    const pulling = feed.pull(subscription);
    feed.leave(subscription);
    expect(await pulling).toBe(true);
    expect([subscription.live, feed.liveCount, watermarks]).toEqual([false, 0, []]);
  });
});

test("a start that continues the feed's history changes the epoch, and makes nobody stale", async () => {
  const feed = await openFeed();
  const live = subscriber(feed);
  const behind = subscriber(feed, feed.head);
  feed.follow(live.subscription);
  await write();
  await feed.refresh();
  const starts = new Starts([
    { id: feed.epoch, postgres: "1", heads: {} },
    { id: "next", postgres: "2", heads: { [runSummaries.topic]: String(feed.head) } },
  ]);
  feed.observe("next", { floor: 0n, partsFloor: 0n, head: feed.head }, starts);
  expect([feed.epoch, live.subscription.history.epoch]).toEqual(["next", "next"]);
  expect(await feed.pull(behind.subscription)).toBe(true);
  expect([behind.watermarks.length, live.staleAt, behind.staleAt, feed.liveCount]).toEqual([1, [], [], 2]);
});

test("a start below the feed's head makes every subscriber stale at its position", async () => {
  const feed = await openFeed();
  const live = subscriber(feed);
  const behind = subscriber(feed, feed.head);
  feed.follow(live.subscription);
  const head = feed.head;
  await write();
  await feed.refresh();
  const starts = new Starts([
    { id: feed.epoch, postgres: "1", heads: {} },
    { id: "next", postgres: "2", heads: { [runSummaries.topic]: String(head) } },
  ]);
  feed.observe("next", { floor: 0n, partsFloor: 0n, head: feed.head }, starts);
  expect(live.staleAt).toEqual([head + 1n]);
  expect(await feed.pull(behind.subscription)).toBe(true);
  expect(behind.staleAt).toEqual([head]);
  expect(feed.liveCount).toBe(0);
});

test("a subscriber beyond the head is stale, after a check of the database", async () => {
  const feed = await openFeed();
  const watermark = await write();
  const known = subscriber(feed, watermark);
  expect(await feed.pull(known.subscription)).toBe(true);
  expect([known.staleAt, known.subscription.live]).toEqual([[], true]);
  const unknown = subscriber(feed, watermark + 1n);
  expect(await feed.pull(unknown.subscription)).toBe(true);
  expect(unknown.staleAt).toEqual([watermark + 1n]);
});
