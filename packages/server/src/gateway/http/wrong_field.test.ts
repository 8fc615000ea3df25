import { AppendRequestSchema } from "@khala/contracts/runtime/v1";
import { SubscribeSchema } from "@khala/contracts/sync/v1";
import { expect, test } from "vitest";
import { wrongField } from "./wrong_field.ts";

const event = { event_id: "1", type: "run.step" };

test.each([
  [{ events: "all" }, "events"],
  [{ evnets: [] }, "evnets"],
  [{ expected_seq: "many", events: [event] }, "expected_seq"],
  [{ events: [event, null] }, "events[1]"],
  [{ events: [event, "x"] }, "events[1]"],
  [{ events: [event, { ...event, event_id: 7 }] }, "events[1].event_id"],
  [{ events: [event, { ...event, data: "x" }] }, "events[1].data"],
  [{ events: [event, { ...event, colour: "red" }] }, "events[1].colour"],
  [
    { events: [{ ...event, data: JSON.parse(`{"fields":${"[".repeat(200)}${"]".repeat(200)}}`) }] },
    "events[0].data",
  ],
  ["text", ""],
  [{ events: [event] }, ""],
])("%j: %s", (sent, path) => {
  expect(wrongField(AppendRequestSchema, sent)).toBe(path);
});

test("a list of texts, and a map, are named as a whole; unknown fields count if they are refused", () => {
  expect(wrongField(SubscribeSchema, { topics: ["a", 1] })).toBe("topics");
  expect(wrongField(SubscribeSchema, { resume_after: { a: { watermark: "x" } } })).toBe("resume_after");
  expect(wrongField(SubscribeSchema, { colour: "red" })).toBe("colour");
  expect(wrongField(SubscribeSchema, { colour: "red" }, true)).toBe("");
});
