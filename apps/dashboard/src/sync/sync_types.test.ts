import { expect, test } from "vitest";
import { readSockets } from "../data/sockets.ts";
import { distance, readTopic, subscriptionsOf } from "./sync_types.ts";

test("a client is behind by the distance from its cursor to the head of the topic", () => {
  const topics = [readTopic({ topic: "runs", head: "57" })];
  const sockets = readSockets({
    sockets: [
      {
        id: "s1",
        channels: [{ topic: "sync:v1", cursors: { runs: { watermark: "41" }, unknown: { watermark: "3" } } }],
      },
      { id: "s2", channels: [{ topic: "ops:v1" }] },
    ],
  });
  expect(subscriptionsOf(sockets, topics)).toMatchObject([
    { id: "s1/runs", watermark: "41", head: "57", behind: 16 },
    { id: "s1/unknown", behind: undefined },
  ]);
});

test("compares 64-bit positions exactly, and never shows a client as ahead", () => {
  expect(distance("9007199254740993", "9007199254740995")).toBe(2);
  expect(distance("58", "57")).toBe(0);
});

test("does not show a projection on another server as behind", () => {
  expect(readTopic({ projection: { state: "elsewhere", head: "9" } }).behind).toBeUndefined();
  expect(readTopic({ projection: { state: "ok", position: "7", head: "9" } }).behind).toBe(2);
});
