import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runSummaries } from "../models/runtime.ts";
import { trimTopic } from "../rebuild/retention.ts";
import { type SyncParts, syncParts } from "../test_support.ts";
import { Backlog, type BacklogPage } from "./backlog.ts";
import { type Journal, openJournal, type Want } from "./journal.ts";

const LIMITS = { rows: 10, bytes: 10_000, payloadBytes: 5_000 };

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

/** Writes documents in order; the audience of each is given. */
async function write(org: string, audiences: readonly (readonly string[] | null)[], bytes = 10) {
  const written = await parts.write(
    runSummaries,
    ...audiences.map((audience, i) => ({
      docKey: `run:${org}-${i}`,
      docVersion: 1n,
      op: "upsert" as const,
      payload: JSON.stringify("x".repeat(bytes)),
      org,
      audience,
    })),
  );
  return written.map(({ watermark }) => watermark!);
}

/** A backlog whose reads are counted. */
function openBacklog(limits = LIMITS) {
  const journal = openJournal(database.database);
  const reads: (readonly Want[])[] = [];
  const counted: Journal = {
    ...journal,
    readWanted(model, wants, readLimits) {
      reads.push(wants);
      return journal.readWanted(model, wants, readLimits);
    },
  };
  return { backlog: new Backlog(counted, runSummaries, limits), reads };
}

const page = (result: BacklogPage) => {
  if (result === "stale") throw new Error("The page is stale.");
  return { watermarks: result.rows.map(({ watermark }) => watermark), through: result.through };
};

/** Everything that a viewer gets, page after page, and the largest page. */
async function drain(
  backlog: Backlog,
  viewer: { org: string; subject: string },
  after: bigint,
  head: bigint,
) {
  const rows: bigint[] = [];
  let largest = 0;
  for (let position = after; position < head; ) {
    const { watermarks, through } = page(await backlog.read(viewer, position));
    expect(through).toBeGreaterThan(position);
    expect(watermarks.every((watermark) => watermark > position && watermark <= through)).toBe(true);
    largest = Math.max(largest, watermarks.length);
    rows.push(...watermarks);
    position = through;
  }
  return { rows, largest };
}

test("a viewer gets its rows once, in order and within the limits, and progress over the others", async () => {
  const audiences = Array.from({ length: 90 }, (_, i) => [null, ["ann"], ["bob"]][i % 3]!);
  const watermarks = await write("pages", audiences);
  const { backlog } = openBacklog();
  const first = watermarks[0]! - 1n;
  const { rows, largest } = await drain(backlog, { org: "pages", subject: "ann" }, first, watermarks.at(-1)!);
  expect(rows).toEqual(watermarks.filter((_, i) => i % 3 !== 2));
  expect(largest).toBe(LIMITS.rows);
  const nothing = page(await backlog.read({ org: "elsewhere", subject: "ann" }, first));
  expect(nothing.watermarks).toEqual([]);
  expect(nothing.through).toBeGreaterThanOrEqual(watermarks.at(-1)!);
});

test("a page stays within its bytes, but has at least one row", async () => {
  const watermarks = await write("bytes", Array(12).fill(null), 4_000);
  const { backlog } = openBacklog();
  const read = async (after: bigint) =>
    page(await backlog.read({ org: "bytes", subject: "ann" }, after)).watermarks;
  expect(await read(watermarks[0]! - 1n)).toEqual(watermarks.slice(0, 2));
  const narrow = openBacklog({ ...LIMITS, bytes: 1 }).backlog;
  expect(page(await narrow.read({ org: "bytes", subject: "ann" }, watermarks[3]!)).watermarks).toEqual([
    watermarks[4],
  ]);
});

test("serves concurrent readers near the same position with one read", async () => {
  const watermarks = await write("crowd", Array(30).fill(null));
  const { backlog, reads } = openBacklog({ ...LIMITS, rows: 1_000 });
  const start = watermarks[0]! - 1n;
  const asked = Array.from({ length: 200 }, (_, i) => ({
    subject: `user-${i % 7}`,
    after: start + BigInt(i % 5),
  }));
  const pages = await Promise.all(
    asked.map(({ subject, after }) => backlog.read({ org: "crowd", subject }, after)),
  );
  pages.forEach((each, i) => {
    expect(page(each).watermarks).toEqual(watermarks.filter((watermark) => watermark > asked[i]!.after));
  });
  expect(reads).toHaveLength(1);
  // The rows of the org once, and the rows of each subject once; at most twice where the neighbourhood ends.
  expect(reads[0]!.length).toBeLessThanOrEqual(2 * 8);
});

test("reads for thousands of viewers in one round, within the limits of a round", async () => {
  const people = Array.from({ length: 3_000 }, (_, i) => [`person-${i}`]);
  const watermarks = await write("many", people, 20_000);
  const { backlog, reads } = openBacklog({ rows: 10, bytes: 1 << 20, payloadBytes: 1 << 20 });
  const start = watermarks[0]! - 1n;
  const pages = await Promise.all(
    people.map(([subject]) => backlog.read({ org: "many", subject: subject! }, start)),
  );
  expect(pages.map((each) => page(each).watermarks)).toEqual(watermarks.map((watermark) => [watermark]));
  expect(reads[0]).toHaveLength(3_001);
  // 60 MB do not fit into one round of 32: those that nothing was left for came in the next.
  expect(reads.map((wants) => wants.length > 1)).toEqual([true, true]);
});

test("new readers behind it never block a reader that is ahead", async () => {
  const watermarks = await write("ahead", Array(60).fill(null));
  const { backlog } = openBacklog();
  const viewer = { org: "ahead", subject: "ann" };
  const start = watermarks[0]! - 1n;
  let waiting = true;
  const ahead = backlog.read(viewer, watermarks[40]!).finally(() => {
    waiting = false;
  });
  for (let i = 0; waiting && i < 50; i++) await backlog.read(viewer, start);
  expect(waiting).toBe(false);
  expect(page(await ahead).watermarks).toEqual(watermarks.slice(41, 51));
});

test("a failed read fails only the readers that waited for it", async () => {
  const [watermark] = await write("failing", [null]);
  const journal = openJournal(database.database);
  let failing = true;
  const flaky: Journal = {
    ...journal,
    readWanted: (...args) =>
      failing ? Promise.reject(new Error("the line is dead")) : journal.readWanted(...args),
  };
  const backlog = new Backlog(flaky, runSummaries, LIMITS);
  const viewer = { org: "failing", subject: "ann" };
  const both = await Promise.allSettled([backlog.read(viewer, 0n), backlog.read(viewer, 1n)]);
  expect(both.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  failing = false;
  expect(page(await backlog.read(viewer, watermark! - 1n)).watermarks).toEqual([watermark]);
});

test("a position below the floor or beyond the head is stale; the floor and the head are not", async () => {
  await write("trimmed", Array(5).fill(null));
  await trimTopic(database.database, runSummaries, 0);
  const watermarks = await write("after-trim", Array(3).fill(null));
  const floor = watermarks[0]! - 1n;
  const head = watermarks.at(-1)!;
  const { backlog } = openBacklog();
  const viewer = { org: "after-trim", subject: "ann" };
  expect(await backlog.read(viewer, floor - 1n)).toBe("stale");
  expect(await backlog.read(viewer, head + 1n)).toBe("stale");
  expect(page(await backlog.read(viewer, floor))).toEqual({ watermarks, through: head });
  expect(page(await backlog.read(viewer, head))).toEqual({ watermarks: [], through: head });
});
