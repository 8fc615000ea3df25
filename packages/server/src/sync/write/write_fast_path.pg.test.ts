import { seeded, testContext } from "@khala/test-support/kit/context";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, expect, test } from "vitest";
import { syncMetrics } from "../metrics.ts";
import { defineModel, type Model } from "../model.ts";
import { createReadModels } from "../read/read_models.ts";
import { headOf, journalOf } from "../test_support.ts";
import { openSink, type Sink } from "./sink.ts";
import { writeFastPath } from "./write_fast_path.ts";
import {
  type DocumentWrite,
  lockProjection,
  lockTopic,
  type WrittenRow,
  waves,
  writeDocuments,
} from "./write_statement.ts";

let shared: TestDatabase;
let sink: Sink;
beforeAll(async () => {
  shared = await testDatabase();
  const context = await testContext();
  const metrics = syncMetrics(context.telemetry.meter);
  sink = openSink(shared.database, context, { inline: true, metrics, onCommit: () => {} });
});
afterAll(() => shared[Symbol.asyncDispose]());

/** Where the checkpoint of a model without a projection stays. */
const STAY = { from: 0n, to: 0n, generation: 0n };
let count = 0;
/** Topics of their own for a test; their documents have the same keys. */
async function freshModels(): Promise<[Model, Model]> {
  const name = `p${++count}`;
  const model = (topic: string, prefix: string) =>
    defineModel({ topic, prefix, streams: [], project: (before) => before });
  const models: [Model, Model] = [model(`app.${name}_a`, name), model(`app.${name}_b`, name)];
  await createReadModels(shared.database, models);
  return models;
}

const upsert = (model: Model, id: string, version: number, org = "acme"): DocumentWrite => ({
  docKey: `${model.prefix}:${id}`,
  docVersion: BigInt(version),
  op: "upsert",
  payload: JSON.stringify({ id, version, text: "ä 😀" }),
  org,
  audience: null,
});

/** The slow path, for any writes. */
async function writeLong(model: Model, writes: readonly DocumentWrite[]): Promise<(bigint | null)[]> {
  const parts = waves(writes);
  const statements = parts.map((part) => writeDocuments(model, part, true));
  const [, ...answers] = await shared.database.transaction([lockTopic(model.topic), ...statements]);
  const watermarks = new Map<DocumentWrite, bigint | null>();
  parts.forEach((part, p) => {
    for (const row of answers[p] as unknown[] as WrittenRow[])
      watermarks.set(part[row.ord - 1]!, row.watermark);
  });
  return writes.map((write) => watermarks.get(write) ?? null);
}

/** Whether the fast path takes the writes. */
async function writeShort(model: Model, writes: readonly DocumentWrite[]): Promise<boolean> {
  const statements = [lockProjection(model.topic), writeFastPath(model, writes, true, STAY)];
  const [, rows] = await shared.database.transaction(statements);
  return rows!.length === 1;
}

/** Everything that a topic holds, but the times. */
async function state(model: Model): Promise<unknown> {
  const text = `SELECT doc_key, doc_version, payload, payload_hash, org_id, audience, deleted, watermark
    FROM runtime.${model.table} ORDER BY org_id, doc_key`;
  const journal = `SELECT watermark, doc_key, doc_version, op, payload, payload_hash, payload_bytes, org_id, audience,
    hidden_from, trace FROM runtime.sync_stream_events WHERE topic = $1 ORDER BY watermark`;
  return {
    documents: await shared.database.query({ text }),
    journal: await shared.database.query({ text: journal, values: [model.topic] }),
    head: await headOf(shared.database, model.topic),
  };
}

test.each([1, 2, 3, 4, 5])("the fast path and the slow path give the same result (seed %i)", async (seed) => {
  const random = seeded(seed);
  const [short, long] = await freshModels();
  const versions = new Map<string, number>();
  let taken = 0;
  for (let batch = 0; batch < 30; batch++) {
    const writes = Array.from({ length: 1 + Math.floor(random() * 12) }, (): DocumentWrite => {
      const id = `${Math.floor(random() * 20)}`;
      const version = (versions.get(id) ?? 0) + (random() < 0.97 ? 1 + Math.floor(random() * 2) : 0);
      versions.set(id, version);
      const org = random() < 0.2 ? "globex" : "acme";
      return { ...upsert(short, id, version, org), ...(random() < 0.3 && { trace: `trace ${version}` }) };
    });
    const expected = await writeLong(long, writes);
    expect((await sink.commit(short, writes, STAY)).map(({ watermark }) => watermark)).toEqual(expected);
    expect(await state(short)).toEqual(await state(long));
    if (!expected.includes(null)) taken++;
  }
  expect(taken).toBeGreaterThan(10);
});

test("keeps every rising version of a batch in the journal, and the newest as the document", async () => {
  const [model] = await freshModels();
  const writes = [upsert(model, "a", 1), upsert(model, "b", 1), upsert(model, "a", 2), upsert(model, "a", 5)];
  expect(await writeShort(model, writes)).toBe(true);
  expect((await journalOf(shared.database, model.topic)).map(({ version }) => version)).toEqual([
    1n,
    1n,
    2n,
    5n,
  ]);
  expect(await state(model)).toMatchObject({
    documents: [
      { doc_version: 5n, watermark: 4n },
      { doc_version: 1n, watermark: 2n },
    ],
    head: 4n,
  });
});

const SPECIAL: readonly [string, (model: Model) => DocumentWrite, (model: Model) => DocumentWrite][] = [
  ["a version that is not newer", (model) => upsert(model, "a", 2), (model) => upsert(model, "a", 2)],
  [
    "an audience before",
    (model) => ({ ...upsert(model, "a", 1), audience: ["ada"] }),
    (model) => upsert(model, "a", 2),
  ],
];
test.each(SPECIAL)(
  "with %s the fast path writes nothing, and the sink writes everything, including its checkpoint",
  async (_, before, after) => {
    const [model] = await freshModels();
    await sink.commit(model, [before(model)], STAY);
    const batch = [upsert(model, "new", 1), after(model)];
    const untouched = await state(model);
    expect(await writeShort(model, batch)).toBe(false);
    expect(await state(model)).toEqual(untouched);
    await sink.commit(model, batch, { from: 0n, to: 7n, generation: 0n });
    expect(await state(model)).toMatchObject({
      documents: [{ doc_version: 2n }, { doc_key: `${model.prefix}:new`, doc_version: 1n }],
    });
    const text = "SELECT position FROM runtime.sync_checkpoints WHERE topic = $1";
    expect(await shared.database.query({ text, values: [model.topic] })).toEqual([{ position: 7n }]);
  },
);

test("a key that another org also uses is another document", async () => {
  const [model] = await freshModels();
  await sink.commit(model, [upsert(model, "a", 9, "globex")], STAY);
  expect(await writeShort(model, [upsert(model, "a", 1), upsert(model, "a", 10, "globex")])).toBe(true);
  expect(await state(model)).toMatchObject({
    documents: [
      { org_id: "acme", doc_version: 1n },
      { org_id: "globex", doc_version: 10n },
    ],
  });
});

test("a deleted document can be written again on the fast path", async () => {
  const [model] = await freshModels();
  const { payload: _, ...gone } = upsert(model, "a", 2);
  await sink.commit(model, [upsert(model, "a", 1)], STAY);
  await sink.commit(model, [{ ...gone, op: "delete" }], STAY);
  expect(await writeShort(model, [upsert(model, "a", 3)])).toBe(true);
  expect(await state(model)).toMatchObject({
    documents: [{ doc_version: 3n, deleted: false, watermark: 3n }],
  });
});
