import { expect, test } from "vitest";
import { uuidArray } from "./arrays.ts";

test("identifiers are sent as their bytes, whatever their case", () => {
  const ids = ["01890a5d-ac96-774b-bcce-b302099a8057", "FFFFFFFF-0A9F-7000-8000-ABCDEFabcdef"];
  const bytes = uuidArray(ids) as Buffer;
  expect(bytes.subarray(0, 20).toString("hex")).toBe("000000010000000000000b860000000200000001");
  const hex = (id: string) => `00000010${id.replaceAll("-", "").toLowerCase()}`;
  expect(bytes.subarray(20).toString("hex")).toBe(ids.map(hex).join(""));
});

test("what is no identifier goes as text, so that PostgreSQL says what is wrong", () => {
  expect(uuidArray(["not an id"])).toEqual(["not an id"]);
});
