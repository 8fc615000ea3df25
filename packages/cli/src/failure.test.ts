import { KhalaError } from "@khala/contracts";
import { expect, test } from "vitest";
import { EXIT, explain } from "./failure.ts";

test("a refused connection names DATABASE_URL; another error keeps its own message", () => {
  const of = (cause: Error) =>
    explain(new KhalaError("unavailable", "The driver is missing.", {}, { cause }));
  const refused = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
  expect(of(refused)).toMatchObject({
    message: expect.stringContaining("Check DATABASE_URL"),
    exitCode: EXIT.unreachable,
  });
  const missing = Object.assign(new Error("Cannot find package"), { code: "ERR_MODULE_NOT_FOUND" });
  expect(of(missing)).toEqual({ message: "The driver is missing.", exitCode: EXIT.unreachable });
});
