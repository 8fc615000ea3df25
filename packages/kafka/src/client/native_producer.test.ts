import { partitionOf } from "@khala/contracts";
import { expect, test } from "vitest";
import type { Outgoing } from "../topics/records.ts";
import type { NativeProducer } from "./client_types.ts";
import { produceAll } from "./native_producer.ts";

function handedOver(record: Outgoing["record"]): unknown[] {
  const calls: unknown[][] = [];
  const native: NativeProducer = {
    produce: (...args) => void calls.push(args),
    removeAllListeners() {},
  };
  produceAll(native, [{ topic: "t", record }], 8);
  expect(calls).toHaveLength(1);
  return calls[0]!;
}

test("passes text as bytes, because a NUL would end a string key", () => {
  expect(handedOver({ key: "a\0b", value: "ü" })).toEqual([
    "t",
    partitionOf("a\0b", 8),
    Buffer.from("ü"),
    Buffer.from("a\0b"),
    0,
    undefined,
    undefined,
  ]);
});

test("keeps a tombstone null, and a given partition and timestamp", () => {
  const record = { key: Buffer.from("k"), value: null, partition: 0, timestamp: "1700000000000" };
  expect(handedOver(record)).toEqual(["t", 0, null, record.key, 1_700_000_000_000, undefined, undefined]);
});

test("writes one header per value", () => {
  const headers = { type: "Draft", raw: Buffer.from([0, 1]), many: ["x", "y"] };
  expect(handedOver({ value: "v", headers }).at(-1)).toEqual([
    { type: "Draft" },
    { raw: Buffer.from([0, 1]) },
    { many: "x" },
    { many: "y" },
  ]);
});

test("throws at the first record that the client refuses, and produces none after it", () => {
  const seen: string[] = [];
  const native: NativeProducer = {
    produce(topic) {
      seen.push(topic);
      if (topic === "b") throw new Error("too large");
    },
    removeAllListeners() {},
  };
  const records = ["a", "b", "c"].map((topic) => ({ topic, record: { value: "v" } }));
  expect(() => produceAll(native, records, 8)).toThrow("too large");
  expect(seen).toEqual(["a", "b"]);
});
