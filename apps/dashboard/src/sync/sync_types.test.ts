import { expect, test } from "vitest";
import { between, readFollowers, readTopic } from "./sync_types.ts";

test("how far behind a client is, is told from its cursor to the head of its topic", () => {
  const topics = [readTopic({ topic: "runs", head: "57" })];
  const sockets = [
    {
      id: "s1",
      subject: "ada",
      channels: [{ topic: "sync:v1", cursors: { runs: { watermark: "41" }, unknown: { watermark: "3" } } }],
    },
    { id: "s2", subject: "bob", channels: [{ topic: "ops:v1" }] },
  ];
  expect(readFollowers({ sockets }, topics)).toMatchObject([
    { id: "s1/runs", subject: "ada", watermark: "41", head: "57", behind: 16 },
    { id: "s1/unknown", behind: undefined },
  ]);
});

test("positions of 64 bits are compared exactly, and a client is never ahead", () => {
  expect(between("9007199254740993", "9007199254740995")).toBe(2);
  expect(between("58", "57")).toBe(0);
});

test("a projection of another server is not called behind", () => {
  const elsewhere = readTopic({ topic: "runs", projection: { state: "elsewhere", head: "9" } });
  expect(elsewhere.projection.behind).toBeUndefined();
  const here = readTopic({ topic: "runs", projection: { state: "ok", position: "7", head: "9" } });
  expect(here.projection.behind).toBe(2);
});
