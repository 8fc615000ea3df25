import { expect, test } from "vitest";
import { intArray, textArray, uuidArray } from "./arrays.ts";

test("identifiers are sent as their bytes, whatever their case", () => {
  const ids = ["01890a5d-ac96-774b-bcce-b302099a8057", "FFFFFFFF-0A9F-7000-8000-ABCDEFabcdef"];
  const bytes = uuidArray(ids) as Buffer;
  expect(bytes.subarray(0, 20).toString("hex")).toBe("000000010000000000000b860000000200000001");
  const hex = (id: string) => `00000010${id.replaceAll("-", "").toLowerCase()}`;
  expect(bytes.subarray(20).toString("hex")).toBe(ids.map(hex).join(""));
});

test.each([
  "not an id",
  "01890a5d-ac96-774b-bcce-b302099a805",
  "01890a5d-ac96-774b-bcce-b302099a805g",
  "01890a5d-ac96-774b-bcce-b302099a-057",
  "01890a5dac96-774b-bcce-b302099a8-057",
  "01890a5d-ac96-774b-bcce-b302099a805é",
])("what is no identifier goes as text, so that PostgreSQL says what is wrong: %s", (wrong) => {
  const ids = ["01890a5d-ac96-774b-bcce-b302099a8057", wrong];
  expect(uuidArray(ids)).toEqual(ids);
});

test.each([[[1, 2_147_483_647, -1, 0]], [[]]])("numbers are sent as their bytes: %j", (values) => {
  const bytes = intArray(values);
  expect(bytes.readInt32BE(8)).toBe(23);
  expect(bytes.readInt32BE(12)).toBe(values.length);
  expect(bytes.length).toBe(20 + 8 * values.length);
  expect(values.map((_, i) => [bytes.readInt32BE(20 + 8 * i), bytes.readInt32BE(24 + 8 * i)])).toEqual(
    values.map((value) => [4, value]),
  );
});

test.each([[["plain", "", "two words"]], [["é", "plain"]], [["a", null, "ü"]], [[]]])(
  "texts are sent as their bytes: %j",
  (values) => {
    const bytes = textArray(values);
    const read: (string | null)[] = [];
    for (let at = 20; at < bytes.length; ) {
      const size = bytes.readInt32BE(at);
      read.push(size < 0 ? null : bytes.toString("utf8", at + 4, at + 4 + size));
      at += 4 + Math.max(0, size);
    }
    expect(read).toEqual(values);
    expect(bytes.readInt32BE(4)).toBe((values as (string | null)[]).includes(null) ? 1 : 0);
    expect(bytes.readInt32BE(12)).toBe(values.length);
  },
);
