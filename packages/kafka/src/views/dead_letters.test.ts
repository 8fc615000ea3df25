import { expect, test } from "vitest";
import type { LogRecord } from "../topics/log_reader.ts";
import { DeadLetters } from "./dead_letters.ts";

const TOPIC = "flock.dlq.reviewer";

function opened(): { letters: DeadLetters; bury(count: number): void } {
  let at = 0;
  const letters = new DeadLetters("reviewer", {
    topic: TOPIC,
    fresh: async () => ({ partition: 0, low: 0, end: at }),
    range: async () => [],
  });
  const bury = (count: number) => {
    for (let i = 0; i < count; i++) letters.onRecord(recordAt(at++));
  };
  return { letters, bury };
}

function recordAt(at: number): LogRecord {
  return { topic: TOPIC, partition: 0, at, offset: String(at), key: null, value: null, timestamp: "0" };
}

test("counts dead letters exactly up to a bound", () => {
  const { letters, bury } = opened();
  bury(9_999);
  expect(letters.names(0)).toHaveLength(9_999);
  for (let i = 0; i < 6; i++) {
    bury(2_500);
    expect(letters.names(0)).toHaveLength(10_000);
  }
});

test("does not count dead letters that the log has dropped", () => {
  const { letters, bury } = opened();
  bury(10);
  expect(letters.names(4)).toHaveLength(6);
  expect(letters.names(4)).toHaveLength(6);
  bury(1);
  expect(letters.names(10)).toHaveLength(1);
  expect(letters.names(11)).toEqual([]);
});
