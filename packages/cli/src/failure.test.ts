import { KhalaError } from "@khala/contracts";
import { expect, test } from "vitest";
import { EXIT, explain } from "./failure.ts";

test("names DATABASE_URL for a refused connection, and keeps the message of other errors", () => {
  const of = (cause: Error) =>
    explain(new KhalaError("unavailable", "The driver is missing.", {}, { cause }));
  const refused = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
  expect(of(refused)).toMatchObject({
    message: expect.stringContaining("Check DATABASE_URL"),
    exitCode: EXIT.unreachable,
  });
  const login = Object.assign(new Error("password authentication failed"), {
    code: "28P01",
    severity: "FATAL",
  });
  expect(of(login).message).toContain("(password authentication failed)");
  const host = Object.assign(new Error("Host: db. is not cert's CN"), {
    code: "ERR_TLS_CERT_ALTNAME_INVALID",
  });
  expect(of(host).message).toContain("(Host: db. is not cert's CN)");
  const gone = Object.assign(new Error('database "db" does not exist'), { code: "3D000", severity: "FATAL" });
  expect(of(gone).message).toContain('(database "db" does not exist)');
  const table = Object.assign(new Error("no such table"), { code: "42P01", severity: "ERROR" });
  expect(of(table).message).toBe("The driver is missing.");
  const missing = Object.assign(new Error("Cannot find package"), { code: "ERR_MODULE_NOT_FOUND" });
  expect(of(missing)).toEqual({ message: "The driver is missing.", exitCode: EXIT.unreachable });
});

test("says that the disk is full, and what to do", () => {
  const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
  expect(explain(full)).toEqual({
    message: expect.stringMatching(/no space left on the disk\. Make room .*KHALA_DATA_DIR/),
    exitCode: EXIT.failed,
  });
});
