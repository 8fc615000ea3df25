import { readFileSync } from "node:fs";
import { create, fromBinary, type MessageInitShape, toBinary, toJson } from "@bufbuild/protobuf";
import { canonicalJson, phoenix, SYNC_CHANNEL } from "@khala/contracts";
import { FrameSchema, UpdateBatchSchema, type UpdateSchema } from "@khala/contracts/sync/v1";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { stampedMessage } from "../test_support.ts";
import type { JournalRow } from "./journal.ts";
import { batchFrame, type EncodedUpdate, encodeUpdate, type Through } from "./update_codec.ts";

const MAX_PAYLOAD = 1_000;

/** An update of the vectors, in JSON. */
interface UpdateVector {
  readonly topic: string;
  readonly doc_key: string;
  readonly doc_version: string;
  readonly op: "upsert" | "delete";
  readonly payload?: object;
  readonly payload_hash?: string;
  readonly watermark: string;
  readonly fetch_required?: boolean;
}

interface BatchVector {
  readonly topic: string;
  readonly updates?: readonly UpdateVector[];
  readonly through: { readonly epoch: string; readonly watermark: string };
  readonly replay_complete?: boolean;
}

interface Vector {
  readonly name: string;
  readonly message: string;
  readonly json: unknown;
  readonly proto_hex: string;
}

const file = new URL("../../../../../proto/vectors/sync_frames.json", import.meta.url);
const vectors: { cases: Vector[] } = JSON.parse(readFileSync(file, "utf8"));
const casesOf = (message: string) =>
  vectors.cases.filter((each) => each.message === `openagents.sync.v1.${message}`);

/** The journal row of an update. */
function rowOf(update: UpdateVector): JournalRow {
  const payload = update.payload ? canonicalJson(update.payload) : null;
  return {
    watermark: BigInt(update.watermark),
    docKey: update.doc_key,
    docVersion: BigInt(update.doc_version),
    op: update.op,
    payload,
    payloadHash: update.payload_hash ?? null,
    payloadBytes: update.fetch_required ? MAX_PAYLOAD + 1 : Buffer.byteLength(payload ?? ""),
    org: "org",
    audience: null,
    hiddenFrom: null,
    trace: null,
    insertedAt: 0,
  };
}

const encode = (update: UpdateVector): EncodedUpdate =>
  encodeUpdate(update.topic, rowOf(update), MAX_PAYLOAD);

describe("an update of the shared vectors", () => {
  test.each(casesOf("Update"))("$name: is encoded to its bytes and its JSON", ({ json, proto_hex }) => {
    const encoded = encode(json as UpdateVector);
    expect(Buffer.from(encoded.proto).toString("hex")).toBe(proto_hex);
    expect(JSON.parse(encoded.json)).toEqual(json);
    expect(encoded.superseded).toBe(false);
  });
});

const rights = "0123456789ab";

/** The frame that the generated code makes, in the place of ours. */
function generated(topic: string, updates: readonly EncodedUpdate[], through: Through) {
  const sent = updates.filter((update) => !update.superseded);
  const epoch = `${through.epoch}.${rights}`;
  const value = create(UpdateBatchSchema, {
    topic,
    updates: sent.map(({ row }) => updateOf(topic, row)),
    through: { epoch, watermark: through.watermark },
    replayComplete: through.replayComplete,
  });
  return create(FrameSchema, { body: { case: "updateBatch", value } });
}

function updateOf(topic: string, row: JournalRow): MessageInitShape<typeof UpdateSchema> {
  return {
    topic,
    docKey: row.docKey,
    docVersion: row.docVersion,
    op: row.op,
    watermark: row.watermark,
    fetchRequired: row.payloadBytes > MAX_PAYLOAD,
    ...(row.payload && { payload: new Uint8Array(Buffer.from(row.payload)) }),
    ...(row.payloadHash && { payloadHash: row.payloadHash }),
  };
}

function frameOf(
  topic: string,
  updates: readonly EncodedUpdate[],
  through: Through,
  encoding: "json" | "proto",
): Buffer {
  return stampedMessage(batchFrame(topic, updates, through, encoding), rights);
}

describe("a batch of the shared vectors", () => {
  test.each(casesOf("UpdateBatch"))("$name: is encoded to its content", ({ json, proto_hex }) => {
    const batch = json as BatchVector;
    const through = {
      epoch: batch.through.epoch,
      watermark: BigInt(batch.through.watermark),
      replayComplete: batch.replay_complete ?? false,
    };
    const updates = (batch.updates ?? []).map(encode);
    const ours = phoenix.decodeServerBinary(frameOf(batch.topic, updates, through, "proto"));
    const { body } = fromBinary(FrameSchema, ours.data);
    if (body.case !== "updateBatch") throw new Error(`The frame holds ${body.case}.`);
    // A viewer's epoch has its rights behind the database's.
    expect(body.value.through!.epoch).toBe(`${through.epoch}.${rights}`);
    body.value.through!.epoch = through.epoch;
    expect(Buffer.from(toBinary(UpdateBatchSchema, body.value)).toString("hex")).toBe(proto_hex);
    const { payload } = phoenix.decodeText(String(frameOf(batch.topic, updates, through, "json")));
    const epoch = `${through.epoch}.${rights}`;
    expect(payload).toEqual({
      update_batch: { updates: [], ...batch, through: { ...batch.through, epoch } },
    });
  });
});

const zero: object = { watermark: "0" };
const name = fc.stringMatching(/^[a-z]{1,12}$/);
const payload = fc.option(fc.dictionary(fc.string(), fc.string({ maxLength: 50 }), { maxKeys: 4 }));
const update = fc.record({
  key: fc.string({ unit: "grapheme", minLength: 1, maxLength: 200 }),
  version: fc.bigInt({ min: 1n, max: 2n ** 63n - 1n }),
  watermark: fc.bigInt({ min: 1n, max: 2n ** 63n - 1n }),
  payload,
  kind: fc.constantFrom("whole", "oversize", "superseded"),
});
const batch = fc.record({
  topic: name,
  epoch: fc.uuid(),
  watermark: fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }),
  replayComplete: fc.boolean(),
  updates: fc.array(update, { maxLength: 20 }),
});

function arbitraryUpdates({
  topic,
  updates,
}: typeof batch extends fc.Arbitrary<infer T> ? T : never): EncodedUpdate[] {
  return updates.map(({ key, version, watermark, payload, kind }) => {
    const base = { topic, doc_key: key, doc_version: String(version), watermark: String(watermark) };
    if (!payload) return encode({ ...base, op: "delete" });
    const whole = encode({ ...base, op: "upsert", payload, payload_hash: "00ff" });
    if (kind === "whole") return whole;
    const payloadBytes = kind === "oversize" ? MAX_PAYLOAD + 1 : whole.row.payloadBytes;
    return encodeUpdate(topic, { ...whole.row, payload: null, payloadBytes }, MAX_PAYLOAD);
  });
}

describe("any batch", () => {
  test("has the bytes that the generated code writes", () => {
    fc.assert(
      fc.property(batch, (each) => {
        const updates = arbitraryUpdates(each);
        const expected = toBinary(FrameSchema, generated(each.topic, updates, each));
        const frame = phoenix.broadcastBinary(SYNC_CHANNEL, "frame", expected);
        expect(frameOf(each.topic, updates, each, "proto").equals(frame)).toBe(true);
      }),
    );
  });

  test("has the JSON of the generated code, with the document itself as payload", () => {
    fc.assert(
      fc.property(batch, (each) => {
        const updates = arbitraryUpdates(each);
        const frame = generated(each.topic, updates, each);
        // The vectors' own shape: the generated JSON type knows only the camel-case names.
        const json: unknown = toJson(FrameSchema, frame, { useProtoFieldName: true });
        const { update_batch: expected } = json as { update_batch: BatchVector };
        const { joinRef, ref, topic, event, payload } = phoenix.decodeText(
          String(frameOf(each.topic, updates, each, "json")),
        );
        expect({ joinRef, ref, topic, event }).toEqual({
          joinRef: null,
          ref: null,
          topic: SYNC_CHANNEL,
          event: "frame",
        });
        const { update_batch: ours } = payload as { update_batch: BatchVector };
        // The JSON mapping omits empty and zero fields; ours writes them.
        expect(ours).toEqual({
          updates: [],
          ...expected,
          through: { ...zero, ...expected.through },
          ...(expected.updates && { updates: expected.updates.map(withDocument) }),
        });
      }),
    );
  });
});

function withDocument(update: UpdateVector): UpdateVector {
  if (update.payload === undefined) return update;
  return { ...update, payload: JSON.parse(String(Buffer.from(String(update.payload), "base64"))) };
}

test("encodes an update once for any number of readers", () => {
  const encoded = encode({
    topic: "t",
    doc_key: "k",
    doc_version: "1",
    op: "upsert",
    payload: {},
    payload_hash: "00",
    watermark: "1",
  });
  expect(encoded.proto).toBe(encoded.proto);
});
