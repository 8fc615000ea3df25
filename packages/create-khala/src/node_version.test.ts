import { expect, test } from "vitest";
import { nodeTooOld } from "./node_version.ts";

test("names the Node that a new app needs, to somebody who has an older one", () => {
  expect(nodeTooOld("20.20.2")).toContain("needs Node 22.18 or later, and this is 20.20.2");
  expect(nodeTooOld("22.17.1")).toBeDefined();
  for (const version of ["22.18.0", "24.0.0", "26.1.0"]) expect(nodeTooOld(version)).toBeUndefined();
});
