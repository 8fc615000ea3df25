import { seeded, testContext } from "@khala/test-support/kit/context";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { syncMetrics } from "../metrics.ts";
import { defineModel, type Model } from "../model.ts";
import { createReadModels } from "../read/read_models.ts";
import { type JournalEntry, journalOf } from "../test_support.ts";
import { openSink, type Sink } from "./sink.ts";
import type { DocumentWrite } from "./write_statement.ts";

/** Where the checkpoint of a model without a projection stays. */
const STAY = { from: 0n, to: 0n, generation: 0n };

let shared: TestDatabase;
let sink: Sink;
let model: Model;
let count = 0;
beforeAll(async () => {
  shared = await testDatabase();
  const context = await testContext();
  const metrics = syncMetrics(context.telemetry.meter);
  sink = openSink(shared.database, context, { inline: true, metrics, onCommit: () => {} });
});
afterAll(() => shared[Symbol.asyncDispose]());
beforeEach(async () => {
  const name = `t${++count}`;
  model = defineModel({ topic: `app.${name}`, prefix: name, streams: [], project: (before) => before });
  await createReadModels(shared.database, [model]);
});

const upsert = (
  version: number,
  org: string,
  audience: readonly string[] | null,
  id = "d",
): DocumentWrite => ({
  docKey: `${model.prefix}:${id}`,
  docVersion: BigInt(version),
  op: "upsert",
  payload: JSON.stringify({ version }),
  org,
  audience,
});
const remove = (version: number, id = "d"): DocumentWrite => {
  const { payload: _, ...rest } = upsert(version, "acme", null, id);
  return { ...rest, op: "delete" };
};

/** The journal in short: version, op, audience. */
async function told(after = 0n): Promise<string[]> {
  const rows = await journalOf(shared.database, model.topic, after);
  return rows.map(
    ({ version, op, org, audience, hiddenFrom }) =>
      `v${version} ${op} ${org}/${audience ?? "*"}${hiddenFrom ? ` but ${hiddenFrom}` : ""}`,
  );
}

async function write(...writes: DocumentWrite[]): Promise<void> {
  for (const each of writes) await sink.commit(model, [each], STAY);
}

test("narrowed to some of the org: the others get a tombstone, the rest an update", async () => {
  await write(upsert(1, "acme", null), upsert(2, "acme", ["ada", "bob"]));
  expect(await told(1n)).toEqual(["v2 delete acme/* but ada,bob", "v2 upsert acme/ada,bob"]);
});

test("given to others: those who lose it get a tombstone, and nobody else", async () => {
  await write(upsert(1, "acme", ["ada", "bob"]), upsert(2, "acme", ["bob", "cleo"]));
  expect(await told(1n)).toEqual(["v2 delete acme/ada", "v2 upsert acme/bob,cleo"]);
});

test("two orgs have documents with the same key, and neither sees the other's", async () => {
  await write(upsert(5, "acme", null), upsert(1, "globex", ["ada"]));
  await sink.commit(
    model,
    [upsert(2, "globex", null), upsert(6, "acme", ["ada"]), upsert(3, "globex", [])],
    STAY,
  );
  await write(remove(7));
  expect(await told()).toEqual([
    "v5 upsert acme/*",
    "v1 upsert globex/ada",
    "v2 upsert globex/*",
    "v6 delete acme/* but ada",
    "v6 upsert acme/ada",
    "v3 delete globex/* but ",
    "v3 upsert globex/",
    "v7 delete acme/ada",
  ]);
});

test("widened: nobody gets a tombstone", async () => {
  await write(upsert(1, "acme", ["ada"]), upsert(2, "acme", ["ada", "bob"]), upsert(3, "acme", null));
  expect(await told(1n)).toEqual(["v2 upsert acme/ada,bob", "v3 upsert acme/*"]);
});

test("narrowed to nobody: everybody gets a tombstone", async () => {
  await write(
    upsert(1, "acme", null),
    upsert(2, "acme", []),
    upsert(3, "acme", ["ada"]),
    upsert(4, "acme", []),
  );
  expect(await told(1n)).toEqual([
    "v2 delete acme/* but ",
    "v2 upsert acme/",
    "v3 upsert acme/ada",
    "v4 delete acme/ada",
    "v4 upsert acme/",
  ]);
});

test("a delete reaches its last audience, and a recreated document sends no tombstone", async () => {
  await write(upsert(1, "acme", ["ada"]), remove(2), upsert(3, "acme", null));
  expect(await told(1n)).toEqual(["v2 delete acme/ada", "v3 upsert acme/*"]);
  const rows = await shared.database.query({
    text: `SELECT doc_version, deleted, payload IS NULL AS empty, org_id FROM runtime.${model.table}`,
  });
  expect(rows).toEqual([{ doc_version: 3n, deleted: false, empty: false, org_id: "acme" }]);
});

test("a tombstone keeps its row, without a payload", async () => {
  await write(upsert(1, "acme", null), remove(2));
  const rows = await shared.database.query({
    text: `SELECT doc_version, deleted, payload, payload_hash, watermark FROM runtime.${model.table}`,
  });
  expect(rows).toEqual([
    { doc_version: 2n, deleted: true, payload: null, payload_hash: null, watermark: 2n },
  ]);
});

test("the same holds when the versions come in one batch", async () => {
  await sink.commit(
    model,
    [
      upsert(1, "acme", null),
      upsert(2, "acme", null),
      upsert(3, "acme", ["ada"]),
      upsert(4, "acme", ["bob"]),
      remove(5),
      upsert(6, "acme", ["bob"]),
      upsert(7, "acme", []),
    ],
    STAY,
  );
  expect(await told()).toEqual([
    "v1 upsert acme/*",
    "v2 upsert acme/*",
    "v3 delete acme/* but ada",
    "v3 upsert acme/ada",
    "v4 delete acme/ada",
    "v4 upsert acme/bob",
    "v5 delete acme/bob",
    "v6 upsert acme/bob",
    "v7 delete acme/bob",
    "v7 upsert acme/",
  ]);
});

test("tells subjects with commas, quotes and braces apart", async () => {
  const odd = ['q"uote', "back\\slash", "{brace}", "NULL", "a,b", " "].sort();
  await sink.commit(
    model,
    [upsert(1, "acme", ["a", "b"]), upsert(2, "acme", ["a,b"]), upsert(3, "acme", odd)],
    STAY,
  );
  const rows = await journalOf(shared.database, model.topic);
  expect(rows.map(({ op, audience }) => [op, audience])).toEqual([
    ["upsert", ["a", "b"]],
    ["delete", ["a", "b"]],
    ["upsert", ["a,b"]],
    ["upsert", odd],
  ]);
});

test("stores an index row for each named viewer of a journal row", async () => {
  await write(upsert(1, "acme", ["ada", "bob"]), upsert(2, "acme", ["bob"]));
  const rows = await shared.database.query({
    text: "SELECT subject, watermark FROM runtime.sync_stream_viewers WHERE topic = $1 ORDER BY watermark, subject",
    values: [model.topic],
  });
  expect(rows).toEqual([
    { subject: "ada", watermark: 1n },
    { subject: "bob", watermark: 1n },
    { subject: "ada", watermark: 2n },
    { subject: "bob", watermark: 3n },
  ]);
});

const SEEDS = [1, 2, 3, 4, 5];
test.each(SEEDS)("after any writes, a viewer's updates add up to what it may see (seed %i)", async (seed) => {
  const random = seeded(seed);
  const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)]!;
  const subjects = ["ada", "bob", "cleo"];
  const versions = new Map<string, number>();
  for (let batch = 0; batch < 15; batch++) {
    const writes = Array.from({ length: 1 + Math.floor(random() * 12) }, () => {
      const id = pick(["x", "y", "z"]);
      const version = (versions.get(id) ?? 0) + (random() < 0.9 ? 1 : 0);
      versions.set(id, version);
      if (random() < 0.2) return remove(version, id);
      const some = subjects.filter(() => random() < 0.5);
      return upsert(version, pick(["acme", "globex"]), random() < 0.4 ? null : some, id);
    });
    await sink.commit(model, writes, STAY);
    const journal = await journalOf(shared.database, model.topic);
    for (const org of ["acme", "globex"])
      for (const subject of subjects)
        expect(viewOf(journal, org, subject)).toEqual(await visible(org, subject));
  }
});

/** The documents of a client that followed the journal: newer versions only. */
function viewOf(journal: readonly JournalEntry[], org: string, subject: string): Map<string, bigint> {
  const held = new Map<string, { version: bigint; alive: boolean }>();
  for (const row of journal) {
    if (row.org !== org || row.hiddenFrom?.includes(subject)) continue;
    if (row.audience !== null && !row.audience.includes(subject)) continue;
    if ((held.get(row.key)?.version ?? 0n) >= row.version) continue;
    held.set(row.key, { version: row.version, alive: row.op === "upsert" });
  }
  const alive = [...held].filter(([, document]) => document.alive);
  return new Map(alive.map(([key, { version }]): [string, bigint] => [key, version]).sort(byKey));
}

async function visible(org: string, subject: string): Promise<Map<string, bigint>> {
  const rows = await shared.database.query<{ key: string; version: bigint }>({
    text: `SELECT doc_key AS key, doc_version AS version FROM runtime.${model.table}
      WHERE NOT deleted AND org_id = $1 AND (audience IS NULL OR $2 = ANY (audience))`,
    values: [org, subject],
  });
  return new Map(rows.map(({ key, version }): [string, bigint] => [key, version]).sort(byKey));
}

const byKey = ([a]: [string, bigint], [b]: [string, bigint]) => (a < b ? -1 : 1);
