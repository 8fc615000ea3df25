import { expect, test } from "vitest";
import { parsePayload, payloadText } from "./payload_draft.ts";

test("tells an edited payload from an unchanged one", () => {
  const text = payloadText({ topic: "Otters" });
  expect(parsePayload(text, text)).toMatchObject({ ok: true, changed: false });
  expect(parsePayload('{"topic":"Seals"}', text)).toEqual({
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
])("reports the line of the error in %j", (text, line) => {
  expect(parsePayload(text, "")).toMatchObject({ ok: false, line });
});
