import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { sha256 } from "./hash.ts";
import { uuidv7 } from "./ids.ts";

test("ids are unique UUIDv7 that sort by time", async () => {
  const clock = new ManualClock();
  const newId = uuidv7(clock);
  const ids: string[] = [];
  for (let i = 0; i < 200; i++) {
    ids.push(newId());
    await clock.advance(1);
  }
  for (const id of ids)
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(ids).toEqual([...ids].sort());
  expect(Number.parseInt(ids[0]!.replaceAll("-", "").slice(0, 12), 16)).toBe(Date.UTC(2026, 0, 1));
  const together = Array.from({ length: 1_000 }, newId);
  expect(new Set(together).size).toBe(1_000);
  expect(together).toEqual([...together].sort());
});

test("sha256 is lowercase hex, equal for text and its bytes", () => {
  expect(sha256("")).toBe("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  expect(sha256("é")).toBe(sha256(Buffer.from("é")));
});
