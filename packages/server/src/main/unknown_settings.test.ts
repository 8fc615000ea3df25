import { expect, test } from "vitest";
import { findUnknownSettings } from "./unknown_settings.ts";

test("suggests the setting for a misspelt one", () => {
  const environment = { KHALA_PROT: "4001", KHALA_PORT: "4000", KHALA_ORIGIN: "*", PATH: "/bin" };
  expect(findUnknownSettings(environment)).toEqual([
    { name: "KHALA_ORIGIN", nearest: "KHALA_ORIGINS" },
    { name: "KHALA_PROT", nearest: "KHALA_PORT" },
  ]);
});

test("suggests nothing for a name that is near none", () => {
  expect(findUnknownSettings({ KHALA_SOMETHING_ELSE: "1" })).toEqual([{ name: "KHALA_SOMETHING_ELSE" }]);
});

test("knows the settings of commands and of tests", () => {
  expect(findUnknownSettings({ KHALA_URL: "x", KHALA_TEST_REDIS_URL: "x" }, ["KHALA_URL"])).toEqual([]);
});
