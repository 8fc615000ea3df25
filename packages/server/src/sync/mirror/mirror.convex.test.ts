import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { type ConvexStandIn, startConvexStandIn } from "@khala/test-support/servers/convex_stand_in";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { runSummaries } from "../models/runtime.ts";
import { recordStart } from "../read/starts.ts";
import { headOf, type SyncParts, syncParts } from "../test_support.ts";
import { convexMirror } from "./mirror_convex.ts";
import { startMirrorFollower } from "./mirror_follower.ts";
import { compareWithMirror, type ParityReport, parityLines } from "./parity.ts";

const TOPIC = runSummaries.topic;
const SECRET = "only the two of us know";
const signal = new AbortController().signal;

let own: TestDatabase;
let parts: SyncParts;
let convex: ConvexStandIn;
beforeAll(async () => {
  own = await testDatabase();
  parts = await syncParts(own.database);
  await own.database.interactive((tx) => recordStart(tx, parts.context));
});
afterAll(async () => {
  await parts[Symbol.asyncDispose]();
  await own[Symbol.asyncDispose]();
});
beforeEach(async () => {
  convex = await startConvexStandIn({ secret: SECRET });
  return () => convex[Symbol.asyncDispose]();
});

const settings = () => ({
  url: convex.url,
  mutation: "khala:applyUpdates",
  query: "khala:versions",
  secret: SECRET,
});

let version = 0n;
const write = (id: string, text: string, audience: readonly string[] | null = null) =>
  parts.write(runSummaries, {
    docKey: `run:${id}`,
    docVersion: ++version,
    op: "upsert",
    payload: JSON.stringify({ text }),
    org: "acme",
    audience,
  });
const remove = (id: string) =>
  parts.write(runSummaries, {
    docKey: `run:${id}`,
    docVersion: ++version,
    op: "delete",
    org: "acme",
    audience: null,
  });

/** Publishes to the stand-in while `work` runs, until it has everything. */
async function dualPublish(work: () => Promise<unknown> = async () => {}): Promise<void> {
  const sink = await convexMirror(settings());
  const follower = startMirrorFollower(runSummaries, parts.context, {
    database: own.database,
    sink,
    metrics: parts.metrics,
    pollMs: 10,
    timeoutMs: 500,
    retryMs: { base: 2, cap: 10 },
    active: () => true,
  });
  try {
    await work();
    const text = "SELECT watermark FROM runtime.sync_mirror WHERE sink = $1";
    await vi.waitFor(
      async () => {
        const [place] = await own.database.query<{ watermark: bigint }>({ text, values: [sink.name] });
        expect(place?.watermark).toBe(await headOf(own.database, TOPIC));
      },
      { timeout: 30_000, interval: 10 },
    );
  } finally {
    await follower.stop();
  }
}

const compare = async (): Promise<ParityReport> =>
  compareWithMirror(own.database, {
    reader: await convexMirror(settings()),
    models: [runSummaries],
    signal,
  });

test("calls the mutation as the npm client does, with every update, until both sides are equal", async () => {
  await dualPublish(async () => {
    await write("a", "one");
    await write("a", "two", ["ada", "bob"]);
    await write("b", "gone");
    await remove("b");
  });
  expect(convex.topic(TOPIC).get("acme run:a")).toMatchObject({
    payload: '{"text":"two"}',
    org_id: "acme",
    audience: ["ada", "bob"],
    op: "upsert",
  });
  expect(convex.topic(TOPIC).get("acme run:b")).toMatchObject({ op: "delete", payload: null });
  expect(convex.calls[0]).toMatchObject({
    endpoint: "/api/mutation",
    path: "khala:applyUpdates",
    format: "convex_encoded_json",
    client: expect.stringMatching(/^npm-1\./),
    args: { topic: TOPIC, epoch: expect.any(String), updates: expect.any(Array), secret: SECRET },
  });
  const report = await compare();
  expect(report).toMatchObject({
    equal: true,
    topics: [{ topic: TOPIC, lag: { following: true, rows: 0n, ms: 0 } }],
  });
  expect(report.topics[0]!.equal).toBe(report.topics[0]!.documents);
});

test.each([
  ["throws", "throws"],
  ["is unavailable", "unavailable"],
  ["hangs", "hangs"],
] as const)("a deployment that %s delays nobody, and gets everything once it works", async (_, how) => {
  await write("early", how);
  convex.behave(how);
  await dualPublish(async () => {
    await vi.waitFor(() => expect(convex.calls.length).toBeGreaterThan(1), { timeout: 30_000 });
    expect(await write("meanwhile", how)).toEqual([{ watermark: expect.any(BigInt) }]);
    convex.behave("works");
  });
  expect(convex.topic(TOPIC).get("acme run:meanwhile")?.payload).toBe(JSON.stringify({ text: how }));
  expect(await compare()).toMatchObject({ equal: true });
});

test("parity names different, missing and extra documents, by version and hash", async () => {
  await write("same", "same");
  await write("differs", "ours");
  await write("missing", "ours");
  await write("deleted", "ours");
  await remove("deleted");
  await dualPublish();
  const held = convex.topic(TOPIC);
  const differs = held.get("acme run:differs")!;
  held.set("acme run:differs", { ...differs, payload_hash: "0".repeat(64) });
  held.set("acme run:deleted", { ...differs, doc_key: "run:deleted", doc_version: 3n });
  held.set("acme run:zzz", { ...differs, doc_key: "run:zzz", doc_version: 9n });
  held.delete("acme run:missing");
  const report = await compare();
  expect(report.equal).toBe(false);
  const ours = { version: differs.doc_version, hash: differs.payload_hash };
  expect(report.topics[0]).toMatchObject({
    differing: {
      count: 1,
      examples: [{ docKey: "run:differs", ours, theirs: { ...ours, hash: "0".repeat(64) } }],
    },
    missing: { count: 1, examples: [{ docKey: "run:missing", theirs: null }] },
    extra: {
      count: 2,
      examples: [
        { docKey: "run:deleted", ours: null, theirs: { version: 3n } },
        { docKey: "run:zzz", ours: null, theirs: { version: 9n } },
      ],
    },
    behind: { count: 0 },
  });
  const lines = parityLines(report);
  expect(lines[0]).toMatch(
    /^runtime\.run_summaries: \d+ documents, \d+ equal, 1 differing, 1 missing, 2 extra, 0 behind; no lag$/,
  );
  expect(lines).toContainEqual(
    `  differing acme run:differs  ours: version ${ours.version}, hash ${ours.hash!.slice(0, 12)}  theirs: version ${ours.version}, hash 000000000000`,
  );
});

test("parity counts updates the mirror has not received as behind, not different", async () => {
  await write("old", "old");
  await dualPublish();
  await write("old", "newer");
  await write("brand-new", "new");
  await remove("brand-new");
  await write("other", "new");
  const report = await compare();
  expect(report.equal).toBe(true);
  expect(report.topics[0]).toMatchObject({
    behind: { count: 2, examples: [{ docKey: "run:old" }, { docKey: "run:other", theirs: null }] },
    lag: { following: true, rows: 4n, ms: expect.any(Number) },
  });
  expect(parityLines(report)[0]).toMatch(/2 behind; 4 updates are on their way, the oldest for \d+ ms$/);
});

test("parity reports a mirror that was never followed, with every document missing", async () => {
  const report = await compare();
  expect(report.topics[0]).toMatchObject({ equal: 0, lag: { following: false } });
  expect(report.topics[0]!.missing.count).toBe(report.topics[0]!.documents);
  expect(parityLines(report).join("\n")).toContain("the mirror is not following yet");
});

test("parity compares thousands of documents page by page, in the order of bytes", async () => {
  const odd = ["é", "\u{1f600}", "\ufb00", "Z", "a b"];
  await Promise.all(odd.map((id) => write(id, "odd")));
  await Promise.all(Array.from({ length: 1_200 }, (_, i) => write(`n${i}`, "n")));
  await dualPublish();
  const report = await compare();
  expect(report).toMatchObject({ equal: true, topics: [{ behind: { count: 0 } }] });
  expect(report.topics[0]!.equal).toBeGreaterThan(1_200);
  const listed = convex.calls.filter(({ endpoint }) => endpoint === "/api/query");
  expect(listed.every(({ args }) => args.limit === 500)).toBe(true);
});

test("refuses a mirror that lists in another order, instead of reporting false differences", async () => {
  const reader = {
    name: "odd",
    held: async () =>
      ["run:b", "run:a"].map((docKey) => ({ org: "acme", docKey, docVersion: 1n, payloadHash: null })),
  };
  await expect(compareWithMirror(own.database, { reader, models: [runSummaries], signal })).rejects.toThrow(
    /order of the UTF-8 bytes of their orgs and keys, but "run:a" of "acme" came after "run:b" of "acme"/,
  );
});

test("reports a wrong secret or function with the deployment's message", async () => {
  const sink = await convexMirror({ ...settings(), secret: "wrong" });
  await expect(sink.publish({ topic: TOPIC, epoch: "e", updates: [] }, signal)).rejects.toThrow(
    "Uncaught Error: no",
  );
  const other = await convexMirror({ ...settings(), query: "khala:nothing" });
  await expect(other.held(TOPIC, { org: "", docKey: "" }, 10, signal)).rejects.toThrow("Uncaught Error: no");
});
