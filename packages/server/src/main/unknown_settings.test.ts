import { expect, test } from "vitest";
import { findUnknownSettings } from "./unknown_settings.ts";

test("a misspelt setting is found, with the one that was meant", () => {
  const environment = { KHALA_PROT: "4001", KHALA_PORT: "4000", KHALA_ORIGIN: "*", PATH: "/bin" };
  expect(findUnknownSettings(environment)).toEqual([
    { name: "KHALA_ORIGIN", nearest: "KHALA_ORIGINS" },
    { name: "KHALA_PROT", nearest: "KHALA_PORT" },
  ]);
});

test("a name that is near none has no suggestion", () => {
  expect(findUnknownSettings({ KHALA_SOMETHING_ELSE: "1" })).toEqual([{ name: "KHALA_SOMETHING_ELSE" }]);
});

test("settings of commands and of tests are known", () => {
  expect(findUnknownSettings({ KHALA_URL: "x", KHALA_TEST_REDIS_URL: "x" }, ["KHALA_URL"])).toEqual([]);
});
