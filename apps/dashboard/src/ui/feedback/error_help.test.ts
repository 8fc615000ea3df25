import { ERRORS } from "@khala/contracts";
import { expect, test } from "vitest";
import { isKnownError } from "./error_help.ts";

test("every code of the server has help on the page", () => {
  expect(Object.keys(ERRORS).filter((code) => !isKnownError(code))).toEqual([]);
});
