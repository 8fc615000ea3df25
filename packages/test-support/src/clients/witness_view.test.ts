import { canonicalJson } from "@khala/contracts";
import { beforeEach, expect, test } from "vitest";
import { sha256 } from "../../../server/src/kit/hash.ts";
import { WitnessView } from "./witness_view.ts";
import type { WireUpdate } from "./witness_wire.ts";

const EPOCH = "e1";
let accused: string[];
let view: WitnessView;

beforeEach(() => {
  accused = [];
  view = new WitnessView(
    "topic",
    ({ docKey }) => docKey.startsWith("mine"),
    (what) => accused.push(what),
  );
  view.begin({ epoch: EPOCH, watermark: 0n });
});

function update(docKey: string, docVersion: number, watermark: number): WireUpdate {
  const payload = canonicalJson({ docVersion });
  const head = { docKey, docVersion: BigInt(docVersion), watermark: BigInt(watermark), op: "upsert" };
  return { ...head, payload, hash: sha256(payload), fetchRequired: false };
}

const received = (through: number, ...updates: WireUpdate[]) =>
  view.apply(
    { updates, through: { epoch: EPOCH, watermark: BigInt(through) }, replayComplete: false },
    async () => undefined,
  );

const listed = (watermark: number, ...updates: WireUpdate[]) => ({
  cursor: { epoch: EPOCH, watermark: BigInt(watermark) },
  documents: new Map(
    updates.map(({ docKey, docVersion, hash = "" }) => [docKey, { version: docVersion, hash }] as const),
  ),
});

test("accepts updates that arrive in order", async () => {
  await received(4, update("mine:1", 1, 1), update("mine:2", 1, 3));
  await received(5, update("mine:1", 2, 5));
  expect(view.agreesWith(listed(5, update("mine:1", 2, 5), update("mine:2", 1, 3)))).toBe(true);
  expect(accused).toEqual([]);
});

test("records a version, a watermark or a position that goes back", async () => {
  await received(2, update("mine:1", 2, 2));
  await received(3, update("mine:1", 1, 3));
  await received(4, update("mine:2", 1, 2));
  await received(1);
  expect(accused).toEqual([
    "topic: mine:1 version 1 at 3 came after version 2",
    "topic: mine:2 version 1 at 2 came after 3",
    "topic: e1/1 is before 4",
  ]);
});

test("a foreign document and a wrong hash are recorded as violations", async () => {
  await received(1, update("yours:1", 1, 1));
  await received(2, { ...update("mine:1", 1, 2), hash: sha256("something else") });
  expect(accused).toHaveLength(2);
  expect(view.cursor).toEqual({ epoch: EPOCH, watermark: 2n });
});

test("accepts an epoch that changes on the way", () => {
  view.progress({ epoch: "e2", watermark: 9n });
  expect([accused, view.cursor]).toEqual([[], { epoch: "e2", watermark: 9n }]);
});

test("records a gap once its position equals that of a list", async () => {
  await received(2, update("mine:1", 1, 1));
  expect(view.agreesWith(listed(3, update("mine:1", 1, 1)))).toBe(false);
  expect(view.agreesWith(listed(2, update("mine:2", 1, 2)))).toBe(true);
  expect(accused).toEqual([
    "topic: at e1/2: mine:1 version 1 is held and not listed",
    "topic: at e1/2: mine:2 version 1 is listed and not held",
  ]);
});
