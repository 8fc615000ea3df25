import { testDatabase } from "@khala/test-support/postgres/test_database";
import { runCli } from "@khala/test-support/processes/run_cli";
import { describe, expect, test } from "vitest";
import { examine, stock, useEveryPlane } from "./support.ts";

/** The URL with TLS; the certificate is for 127.0.0.1. */
function verified(url: string, { host = "127.0.0.1", ca }: { host?: string; ca?: string }): string {
  const secure = new URL(url);
  secure.hostname = host;
  secure.searchParams.set("sslmode", "verify-full");
  if (ca) secure.searchParams.set("sslrootcert", ca);
  return secure.toString();
}

describe.runIf(stock.CA_FILE)("sslmode=verify-full", () => {
  const ca = stock.CA_FILE!;
  const TLS = "TLS to the database";

  test("connects to a server with a trusted certificate for its host, and doctor reports TLS", async () => {
    await using database = await testDatabase();
    const url = verified(database.url, { ca });
    await useEveryPlane(url);
    expect((await examine(url))[TLS]).toBe("ok: on, TLSv1.3, with a verified certificate");
    expect((await examine(database.url))[TLS]).toBe("ok: off, on this machine");
    const unverified = `${database.url}?sslmode=no-verify`;
    expect((await examine(unverified))[TLS]).toMatch(/^warning: on.* not verified .*sslmode=verify-full/);
  });

  test.for([
    ["another host", { host: "localhost", ca }, "Host: localhost. is not cert's CN"],
    ["an unknown authority", {}, "unable to verify the first certificate"],
  ] as const)("refuses a certificate of %s with the reason", async ([, how, reason]) => {
    await using database = await testDatabase();
    const url = verified(database.url, how);
    const { code, err } = await runCli(["migrate"], { DATABASE_URL: url });
    expect(err).toContain(`The database cannot be reached (`);
    expect(err).toContain(reason);
    expect(code).toBe(3);
    const { database: found } = await examine(url);
    expect(found).toContain(reason);
    expect(found).toContain("sslrootcert");
  });
});
