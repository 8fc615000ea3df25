import { expect, test } from "vitest";
import { payloadText, readPayload } from "./payload_draft.ts";

test("an untouched payload is known as unchanged, an edited one as changed", () => {
  const text = payloadText({ topic: "Otters" });
  expect(readPayload(text, text)).toMatchObject({ ok: true, changed: false });
  expect(readPayload('{"topic":"Seals"}', text)).toEqual({
    ok: true,
    value: { topic: "Seals" },
    changed: true,
  });
});

test.each([
  ['{\n  "topic": oops\n}', 2],
  ['{\n  "a": 1,\n  "b": 2,\n}', 4],
  ['{\n  "a": "text\n}', 2],
  ["", 1],
  ['{\n  "a": [1, 2\n', 3],
  ["{} trailing", 1],
])("the mistake in %j is told with its line", (text, line) => {
  expect(readPayload(text, "")).toMatchObject({ ok: false, line });
});
