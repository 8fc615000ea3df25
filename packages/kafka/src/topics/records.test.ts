import { artifactKey } from "@khala/contracts";
import { idempotencyKey } from "@khala/server/blackboard";
import { describe, expect, test } from "vitest";
import type { KafkaRecord, NewRecord } from "../client/client_types.ts";
import { artifact, deadLetter, task } from "../test_support.ts";
import { decodeArtifact, decodeDeadLetter, decodeProcessed, decodeRetry, decodeTask } from "./decoding.ts";
import { cut, HEADER, headerNumber, headerText, MAX_HEADER_BYTES, originOf } from "./record_headers.ts";
import {
  artifactRecord,
  byIdRecord,
  deadLetterRecord,
  processedRecord,
  retryRecord,
  taskRecord,
} from "./records.ts";

const position = { topic: "flock.tasks.reviewer", partition: 3, offset: "1042" };
const origin = { ...position, timestamp: 1_700_000_000_000 };

/** The record as a consumer would see it. */
function read({ key, value, headers = {} }: NewRecord): KafkaRecord {
  const bytes = (of: Buffer | string) => (typeof of === "string" ? Buffer.from(of) : of);
  return {
    key: key == null ? null : bytes(key),
    value: value === null ? null : bytes(value),
    timestamp: "5",
    offset: "0",
    headers: Object.fromEntries(
      Object.entries(headers).map(([name, of]) => [name, bytes(of as Buffer | string)]),
    ),
  };
}

describe("encoding and decoding", () => {
  test("an artifact, keyed by its order key, and by its id in the index", () => {
    const one = artifact({ correlation_id: "c", payload: [1, { a: null }] });
    expect(artifactRecord(one).key).toBe(`acme:${artifactKey(one)}`);
    expect(byIdRecord(one).key).toBe(`${one.id}@acme`);
    expect(decodeArtifact(read(artifactRecord(one)))).toEqual({ ok: true, value: one });
    expect(decodeArtifact(read(byIdRecord(one)))).toEqual({ ok: true, value: one });
  });

  test("a task, and a task that waits for its due time", () => {
    const work = task({ replay_id: "r1", attempt: 4 });
    expect(decodeTask(read(taskRecord(work)))).toEqual({ ok: true, value: work });
    const { failure } = deadLetter();
    const record = read(retryRecord(work, failure, origin, 1_234));
    expect(decodeRetry(record)).toEqual({ ok: true, value: { task: work, dueAt: 1_234 } });
    expect(originOf(record, { topic: "flock.retry.1s", partition: 0, offset: "9" })).toEqual(origin);
    expect(headerNumber(record, HEADER.attempts, 4)).toBe(3);
  });

  test("a processed entry in the partition of its task, under its idempotency key", () => {
    const work = task({ replay_id: "r1" });
    const record = processedRecord(work, "dead", position, "2026-01-01T00:00:00.000Z");
    expect([record.key, record.partition]).toEqual([idempotencyKey(work), 3]);
    expect(decodeProcessed(read(record))).toMatchObject({
      ok: true,
      value: { task_id: work.id, agent: "reviewer", replay_id: "r1", result: "dead", ...position },
    });
  });

  test("a dead letter, with Spring Kafka's headers", () => {
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const work = task({ artifacts: [artifact({ traceparent })] });
    const letter = deadLetter({ task: work, origin: "flock.tasks.reviewer/3@1042" });
    const record = read(deadLetterRecord(letter, origin));
    expect(decodeDeadLetter(record, { ...position, topic: "flock.dlq.reviewer" }, "reviewer")).toEqual(
      letter,
    );
    expect(headerText(record, "traceparent")).toBe(traceparent);
    expect(headerText(record, "khala-dead-letter-id")).toBe(letter.id);
    expect(headerText(record, "khala-failed-at")).toBe(letter.failed_at);
    expectConvention(record, { attempts: letter.attempts });
  });

  test("a retry has the same headers, and its due time", () => {
    const record = read(retryRecord(task({ attempt: 4 }), deadLetter().failure, origin, 1_234));
    expect(headerNumber(record, "retry_topic-backoff-timestamp", 8)).toBe(1_234);
    expectConvention(record, { attempts: 3 });
  });

  test("an artifact has its type and its index entry as headers", () => {
    const one = artifact({ correlation_id: "c", version: 2 });
    expect(headerText(read(artifactRecord(one)), "khala-type")).toBe("Draft");
    expect(headerText(read(byIdRecord(one)), "khala-index")).toBe('2 ["Draft","acme","c"]');
  });

  /** Names are written out, and not taken from the code: other programs look for them. Numbers are big-endian. */
  function expectConvention(record: KafkaRecord, { attempts }: { readonly attempts: number }): void {
    expect(headerText(record, "kafka_dlt-original-topic")).toBe("flock.tasks.reviewer");
    expect(headerNumber(record, "kafka_dlt-original-partition", 4)).toBe(3);
    expect(headerNumber(record, "kafka_dlt-original-offset", 8)).toBe(1_042);
    expect(headerNumber(record, "kafka_dlt-original-timestamp", 8)).toBe(1_700_000_000_000);
    expect(headerText(record, "kafka_dlt-exception-fqcn")).toBe("TypeError");
    expect(headerText(record, "kafka_dlt-exception-message")).toBe("no");
    expect(headerText(record, "kafka_dlt-exception-stacktrace")).toBe("at line 1");
    expect(headerNumber(record, "retry_topic-attempts", 4)).toBe(attempts);
    expect(headerText(record, "khala-failure-kind")).toBe("fatal");
    expect(headerText(record, "khala-agent")).toBe("reviewer");
    expect(headerText(record, "khala-type")).toBe("Draft");
  }
});

describe("returns undecodable records as values, with their bytes", () => {
  const complete = artifact();
  test.each([
    ["bytes that are not UTF-8", Buffer.from([0xff, 0xfe])],
    ["an empty string", Buffer.alloc(0)],
    ["half a JSON", Buffer.from('{"id":')],
    ["JSON that is no object", Buffer.from("[1]")],
    ["an artifact without an id", Buffer.from(JSON.stringify({ ...complete, id: undefined }))],
    ["an artifact without a payload", Buffer.from(JSON.stringify({ ...complete, payload: undefined }))],
    ["a version of 0", Buffer.from(JSON.stringify({ ...complete, version: 0 }))],
    ["tags that are no list", Buffer.from(JSON.stringify({ ...complete, tags: "a" }))],
    ["a correlation that is a number", Buffer.from(JSON.stringify({ ...complete, correlation_id: 1 }))],
  ])("%s", (_, raw) => {
    expect(decodeArtifact({ value: raw })).toEqual({
      ok: false,
      raw,
      error: expect.stringContaining("cannot be read"),
    });
  });

  test("refuses a tombstone as an artifact", () => {
    expect(decodeArtifact({ value: null })).toMatchObject({ ok: false, raw: null });
  });

  test("a task without artifacts, and a retry whose due time is malformed", () => {
    const empty = { ...task(), artifacts: [] };
    expect(decodeTask({ value: Buffer.from(JSON.stringify(empty)) }).ok).toBe(false);
    const record = read(retryRecord(task(), deadLetter().failure, origin, 1));
    const broken = { ...record, headers: { ...record.headers, [HEADER.due]: Buffer.from("soon") } };
    expect(decodeRetry(broken)).toMatchObject({ ok: false, error: expect.stringContaining(HEADER.due) });
  });

  test("derives a stable id for a dead letter that has none", () => {
    const foreign = { value: Buffer.from("?"), timestamp: "0" };
    const one = decodeDeadLetter(foreign, position, "reviewer");
    expect(decodeDeadLetter(foreign, position, "reviewer")).toEqual(one);
    expect(one.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(one.raw).toBe(Buffer.from("?").toString("base64"));
  });
});

test("an artifact of another producer gets defaults for missing fields", () => {
  const { tags, version, depth, visibility, ...rest } = artifact();
  const value = Buffer.from(JSON.stringify(rest));
  expect(decodeArtifact({ value })).toEqual({
    ok: true,
    value: { ...rest, tags, version, depth, visibility },
  });
});

test("cuts the headers of a failure to their limit, between characters", () => {
  const long = { class: "é".repeat(9_999), message: "😀".repeat(99_999), stack: "😀".repeat(99_999) };
  const letter = deadLetter({ task: task(), failure: { ...long, kind: "fatal" } });
  const { headers } = read(deadLetterRecord(letter, origin));
  const bytes = Object.entries(headers!).reduce((sum, [name, value]) => sum + name.length + value!.length, 0);
  expect(bytes).toBeLessThan(MAX_HEADER_BYTES);
  for (const name of [HEADER.exceptionMessage, HEADER.exceptionStack])
    expect(headerText({ headers: headers! }, name)).toMatch(/^(😀)+$/u);
  expect(cut("aé", 2)).toBe("a");
});
