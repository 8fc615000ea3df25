import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex } from "@noble/hashes/utils.js";

const encoder = new TextEncoder();

/** The fields of an artifact that decide its key. */
export interface Keyed {
  readonly type: string;
  readonly id: string;
  readonly partition_key?: string | undefined;
  readonly correlation_id?: string | undefined;
}

/**
 * The key that orders and partitions artifacts: partition_key, else correlation_id, else the first 32 hex digits of
 * SHA-256(type + id). An empty string counts as absent, as in proto3: otherwise all artifacts without a key would share
 * one partition. `hash` replaces the portable SHA-256 where the platform has a faster one (text in, lowercase hex out).
 */
export function artifactKey(
  { type, id, partition_key, correlation_id }: Keyed,
  hash: (text: string) => string = sha256Hex,
): string {
  return partition_key || correlation_id || hash(type + id).slice(0, 32);
}

/** The key of Kafka's records: that of two orgs is never the same, so that neither waits for the other. */
export function recordKey(org: string, key: string): string {
  return `${org}:${key}`;
}

function sha256Hex(text: string): string {
  return bytesToHex(sha256(encoder.encode(text)));
}

/** The partition of a key among `count`, as Kafka's default partitioner chooses it for the key in UTF-8. */
export function partitionOf(key: string, count: number): number {
  if (!Number.isInteger(count) || count < 1) {
    throw new RangeError(`There must be at least one partition, not ${count}.`);
  }
  return (murmur2(encoder.encode(key)) & 0x7fffffff) % count;
}

/** 32-bit MurmurHash2 with the seed that Kafka uses, signed as in Java. */
export function murmur2(bytes: Uint8Array): number {
  const mixer = 0x5bd1e995;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const whole = bytes.length & ~3;
  let hash = 0x9747b28c ^ bytes.length;
  for (let at = 0; at < whole; at += 4) {
    let word = Math.imul(view.getInt32(at, true), mixer);
    word = Math.imul(word ^ (word >>> 24), mixer);
    hash = Math.imul(hash, mixer) ^ word;
  }
  if (whole < bytes.length) {
    // Kafka's signed bytes end in `& 0xff`, so what is left is a little-endian number of 1 to 3 bytes.
    for (let at = whole; at < bytes.length; at++) hash ^= bytes[at]! << ((at - whole) * 8);
    hash = Math.imul(hash, mixer);
  }
  hash = Math.imul(hash ^ (hash >>> 13), mixer);
  return hash ^ (hash >>> 15);
}
