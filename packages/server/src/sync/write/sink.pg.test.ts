import { createHash } from "node:crypto";
import { testContext } from "@khala/test-support/kit/context";
import { patiently } from "@khala/test-support/kit/patiently";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { writeDocument, writeDocuments } from "@khala/test-support/postgres/write_documents";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Database, openDatabase } from "../../database/database.ts";
import { syncMetrics } from "../metrics.ts";
import { defineModel, type Model } from "../model.ts";
import { createReadModels } from "../read/read_models.ts";
import { headOf, journalOf } from "../test_support.ts";
import { openSink, type Sink } from "./sink.ts";
import { type DocumentWrite, lockTopic, writeDocuments as writeSlowPath } from "./write_statement.ts";

let shared: TestDatabase;
beforeAll(async () => {
  shared = await testDatabase({ poolSize: 8 });
});
afterAll(() => shared[Symbol.asyncDispose]());

let count = 0;
/** A topic of its own for a test. */
async function freshModel(): Promise<Model> {
  const name = `t${++count}`;
  const model = defineModel({ topic: `app.${name}`, prefix: name, streams: [], project: (before) => before });
  await createReadModels(shared.database, [model]);
  return model;
}

async function sinkOn(database: Database, { inline = true } = {}): Promise<Sink> {
  const context = await testContext();
  const metrics = syncMetrics(context.telemetry.meter);
  return openSink(database, context, { inline, metrics, onCommit: () => {} });
}

const doc = (
  model: Model,
  id: string,
  version: number,
  more: Partial<DocumentWrite> = {},
): DocumentWrite => ({
  docKey: `${model.prefix}:${id}`,
  docVersion: BigInt(version),
  op: "upsert",
  payload: JSON.stringify({ id, version }),
  org: "acme",
  audience: null,
  ...more,
});
/** Where the checkpoint of a model without a projection stays. */
const STAY = { from: 0n, to: 0n, generation: 0n };
const put = (sink: Sink, model: Model, write: DocumentWrite) =>
  writeDocument(shared.database, sink, model, write);
const tombstoneOf = (model: Model, id: string, version: number): DocumentWrite => {
  const { payload: _, ...rest } = doc(model, id, version);
  return { ...rest, op: "delete" };
};
const rowsOf = (model: Model) =>
  shared.database.query({
    text: `SELECT doc_key, doc_version, org_id, audience, deleted, watermark FROM runtime.${model.table} ORDER BY doc_key`,
  });

test("50 writers of two processes get dense watermarks, in the order of their commits", async () => {
  const model = await freshModel();
  const other = openDatabase({
    url: shared.url,
    poolSize: 4,
    connectTimeoutMs: 60_000,
    log: (await testContext()).log,
  });
  try {
    const sinks = [await sinkOn(shared.database), await sinkOn(other)];
    let done = false;
    let seen = 0n;
    const reading = (async () => {
      // A client that follows with "after the last one I saw" must never be overtaken.
      for (let last = false; !last; ) {
        last = done;
        for (const row of await journalOf(shared.database, model.topic, seen))
          expect(row.watermark).toBe(++seen);
      }
    })();
    const answers = await Promise.all(
      Array.from({ length: 50 }, async (_, writer) => {
        const own: (bigint | null)[] = [];
        for (let version = 1; version <= 10; version++)
          own.push((await put(sinks[writer % 2]!, model, doc(model, `w${writer}`, version))).watermark);
        return own;
      }),
    );
    done = true;
    await reading;
    const all = answers.flat().map(Number);
    expect(all.toSorted((a, b) => a - b)).toEqual(all.map((_, i) => i + 1));
    for (const own of answers.map((each) => each.map(Number)))
      expect(own).toEqual(own.toSorted((a, b) => a - b));
    expect(seen).toBe(500n);
    const journal = await journalOf(shared.database, model.topic);
    answers.forEach((own, writer) => {
      own.forEach((watermark, i) => {
        expect(journal[Number(watermark) - 1]).toMatchObject({
          key: `${model.prefix}:w${writer}`,
          version: BigInt(i + 1),
        });
      });
    });
  } finally {
    await other.close();
  }
});

test("a transaction that commits late delays later ones, so that no reader skips its watermark", async () => {
  const model = await freshModel();
  const sink = await sinkOn(shared.database);
  const opened = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const late = shared.database.interactive(async (tx) => {
    await tx.query(lockTopic(model.topic));
    await tx.query(writeSlowPath(model, [doc(model, "late", 1)], true));
    opened.resolve();
    await gate.promise;
  });
  await opened.promise;
  const behind = put(sink, model, doc(model, "behind", 1));
  await patiently(async () => {
    const waiting =
      "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    expect(await shared.database.query({ text: waiting })).toHaveLength(1);
  });
  expect(await journalOf(shared.database, model.topic)).toEqual([]);
  gate.resolve();
  await late;
  expect(await behind).toEqual({ watermark: 2n });
  expect((await journalOf(shared.database, model.topic)).map((row) => row.key)).toEqual([
    `${model.prefix}:late`,
    `${model.prefix}:behind`,
  ]);
});

test("a rolled back transaction leaves no gap", async () => {
  const model = await freshModel();
  const sink = await sinkOn(shared.database);
  await put(sink, model, doc(model, "a", 1));
  const failing = [
    lockTopic(model.topic),
    writeSlowPath(model, [doc(model, "b", 1)], true),
    { text: "SELECT 1/0" },
  ];
  await expect(shared.database.transaction(failing)).rejects.toMatchObject({ code: "22012" });
  expect(await put(sink, model, doc(model, "c", 1))).toEqual({ watermark: 2n });
});

test("a version that is not newer changes nothing, and its writer gets no watermark", async () => {
  const model = await freshModel();
  const sink = await sinkOn(shared.database);
  await put(sink, model, doc(model, "a", 5));
  const before = await rowsOf(model);
  for (const version of [4, 5])
    expect(await put(sink, model, doc(model, "a", version, { payload: '"other"' }))).toEqual({
      watermark: null,
    });
  expect(await put(sink, model, tombstoneOf(model, "a", 5))).toEqual({ watermark: null });
  expect(await rowsOf(model)).toEqual(before);
  expect(await headOf(shared.database, model.topic)).toBe(1n);
});

test("concurrent writes to a document keep the highest version, and rising versions in the journal", async () => {
  const model = await freshModel();
  const sinks = [await sinkOn(shared.database), await sinkOn(shared.database), await sinkOn(shared.database)];
  const versions = Array.from({ length: 90 }, (_, i) => ((i * 37) % 90) + 1);
  await Promise.all(versions.map((version, i) => put(sinks[i % 3]!, model, doc(model, "a", version))));
  expect(await rowsOf(model)).toMatchObject([{ doc_version: 90n }]);
  const journal = (await journalOf(shared.database, model.topic)).map((row) => Number(row.version));
  expect(journal).toEqual(journal.toSorted((a, b) => a - b));
  expect(new Set(journal).size).toBe(journal.length);
});

test("lets a commit announce itself, given its updates and the duration of the last one", async () => {
  const model = await freshModel();
  const context = await testContext();
  // Each read of this clock takes ten milliseconds.
  let now = 0;
  const clock = { ...context.clock, now: () => (now += 10) };
  const asked: unknown[] = [];
  const told: unknown[] = [];
  const sink = openSink(
    shared.database,
    { ...context, clock },
    {
      inline: true,
      metrics: syncMetrics(context.telemetry.meter),
      wakeup(...about) {
        asked.push(about);
        return asked.length === 1 ? { text: "SELECT set_config('khala.told', 'yes', true)" } : undefined;
      },
      onCommit: (...about) => told.push(about),
    },
  );
  await sink.commit(
    model,
    ["a", "b"].map((id) => doc(model, id, 1)),
    STAY,
  );
  await sink.commit(model, [tombstoneOf(model, "a", 2)], STAY);
  await sink.commit(model, [], STAY);
  expect(asked).toEqual([
    [model.topic, 2, 0],
    [model.topic, 1, 10],
  ]);
  expect(told).toEqual([
    [model.topic, 2, true],
    [model.topic, 1, false],
  ]);
});

test("writes a batch with its checkpoint completely or not at all", async () => {
  const model = await freshModel();
  const sink = await sinkOn(shared.database);
  const checkpoint = () =>
    shared.database.query({
      text: "SELECT position FROM runtime.sync_checkpoints WHERE topic = $1",
      values: [model.topic],
    });
  const move = { from: 0n, to: 7n, generation: 0n };
  await expect(sink.commit(model, [doc(model, "a", 1), doc(model, "nul\0", 1)], move)).rejects.toMatchObject({
    code: "22021",
  });
  expect([await rowsOf(model), await checkpoint()]).toEqual([[], [{ position: 0n }]]);
  expect(await sink.commit(model, [doc(model, "a", 1)], move)).toEqual([{ watermark: 1n }]);
  for (const wrong of [move, { from: 7n, to: 8n, generation: 1n }])
    await expect(sink.commit(model, [doc(model, "a", 2)], wrong)).rejects.toMatchObject({ code: "40001" });
  expect(await rowsOf(model)).toMatchObject([{ doc_version: 1n }]);
  expect(await checkpoint()).toEqual([{ position: 7n }]);
});

test.each([true, false])(
  "stores payloads as the bytes that were hashed; in the journal too: %s",
  async (inline) => {
    const model = await freshModel();
    const sink = await sinkOn(shared.database, { inline });
    const payload = '{"text":"ä \\" \\\\ \u{1f600}"}';
    await writeDocuments(shared.database, sink, model, [
      doc(model, "a", 1, { payload }),
      doc(model, "b", 1, { payload: "{}" }),
    ]);
    const stored = (table: string) =>
      shared.database.query<{ payload: Buffer | null; hash: Buffer; type: string }>({
        text: `SELECT payload, payload_hash AS hash, pg_typeof(payload)::text AS type FROM runtime.${table} WHERE doc_key = $1`,
        values: [`${model.prefix}:a`],
      });
    const hash = createHash("sha256").update(payload).digest();
    expect(await stored(model.table)).toEqual([{ payload: Buffer.from(payload), hash, type: "bytea" }]);
    const [row] = await stored("sync_stream_events");
    expect(row).toEqual({ payload: inline ? Buffer.from(payload) : null, hash, type: "bytea" });
    const sizes = "SELECT payload_bytes FROM runtime.sync_stream_events WHERE doc_key = $1";
    expect(await shared.database.query({ text: sizes, values: [`${model.prefix}:a`] })).toEqual([
      { payload_bytes: Buffer.byteLength(payload) },
    ]);
  },
);
