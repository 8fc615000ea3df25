import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { artifactKey, type Keyed, murmur2, partitionOf, recordKey } from "./board_key.ts";

interface Vector {
  name: string;
  artifact: Keyed & { org_id: string };
  key: string;
  record_key: string;
  murmur2: number;
  partitions: Record<string, number>;
}

const file = new URL("../../../proto/vectors/board_keys.json", import.meta.url);
const { cases }: { cases: Vector[] } = JSON.parse(readFileSync(file, "utf8"));
const utf8 = (text: string) => new TextEncoder().encode(text);

describe("the shared vectors", () => {
  test.each(cases)("$name", ({ artifact, key, record_key, murmur2: hash, partitions }) => {
    expect(artifactKey(artifact)).toBe(key);
    expect(artifactKey(artifact, (text) => createHash("sha256").update(text).digest("hex"))).toBe(key);
    expect(recordKey(artifact.org_id, key)).toBe(record_key);
    expect(murmur2(utf8(record_key))).toBe(hash);
    for (const [count, partition] of Object.entries(partitions)) {
      expect(partitionOf(record_key, Number(count))).toBe(partition);
    }
  });

  test("have names that tell them apart", () => {
    expect(new Set(cases.map(({ name }) => name)).size).toBe(cases.length);
  });
});

describe("the hashes of Kafka's own tests", () => {
  test.each([
    ["21", -973_932_308],
    ["foobar", -790_332_482],
    ["a-little-bit-long-string", -985_981_536],
    ["a-little-bit-longer-string", -1_486_304_829],
    ["lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971],
    ["abc", 479_470_107],
  ])("%s", (text, hash) => {
    expect(murmur2(utf8(text))).toBe(hash);
  });

  test("are correct for binary data anywhere in a buffer", () => {
    const bytes = Uint8Array.of(99, 12, 42, 56, 24, 109, 111, 99);
    expect(murmur2(bytes.subarray(1, 7))).toBe(274_204_207);
  });
});

test("a key without partition_key and correlation_id is the artifact's own, 32 hex digits", () => {
  fc.assert(
    fc.property(fc.string(), fc.uuid(), (type, id) => {
      const hash = createHash("sha256")
        .update(type + id, "utf8")
        .digest("hex");
      expect(artifactKey({ type, id, partition_key: "", correlation_id: undefined })).toBe(hash.slice(0, 32));
    }),
  );
});

test("a partition is within the number of partitions, for any key", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), fc.integer({ min: 1, max: 10_000 }), (key, count) => {
      const partition = partitionOf(key, count);
      expect(partition).toBeGreaterThanOrEqual(0);
      expect(partition).toBeLessThan(count);
      expect(Number.isInteger(partition)).toBe(true);
    }),
  );
});

test.each([0, -1, 1.5, Number.NaN])("%s partitions are refused", (count) => {
  expect(() => partitionOf("key", count)).toThrow(RangeError);
});
