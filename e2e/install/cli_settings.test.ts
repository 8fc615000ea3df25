import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { runCli as khala } from "@khala/test-support/processes/run_cli";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const SECRETS = `k1:${Buffer.alloc(32, 1).toString("base64")}`;

let folder: string;
const startedIn = process.cwd();
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-settings-"));
  process.chdir(folder);
});
afterAll(async () => {
  process.chdir(startedIn);
  await rm(folder, { recursive: true, force: true });
});

test("config, doctor and serve refuse the same settings, by name", async () => {
  for (const [name, value] of [
    ["KHALA_AUTH_SECRETS", "k1:c2hvcnQ="],
    ["KAFKA_BOOTSTRAP_SERVERS", "bad"],
  ] as const) {
    const env = { KHALA_AUTH_SECRETS: SECRETS, [name]: value };
    for (const command of ["config", "serve"])
      expect(await khala([command], env)).toMatchObject({
        code: 2,
        err: expect.stringContaining(`${name}: must be`),
      });
    expect(await khala(["doctor"], env)).toMatchObject({
      code: 4,
      out: expect.stringContaining(`${name}: must be`),
    });
  }
});

test("serve refuses a file of keys that is missing or is none, with the name of the setting", async () => {
  await using store = await testDatabase();
  await writeFile("no-keys.json", "{");
  await writeFile("no-set.json", "{}");
  for (const [file, reason] of [
    ["missing.json", "ENOENT"],
    ["no-keys.json", "it is not JSON"],
    ["no-set.json", "is expected"],
  ] as const) {
    const env = { DATABASE_URL: store.url, KHALA_AUTH_JWKS_FILE: file };
    const { code, err } = await khala(["serve", "--port", "0"], env);
    expect(err).toMatch(/KHALA_AUTH_JWKS_FILE: the key set .* cannot be read/);
    expect(err).toContain(reason);
    expect(code).toBe(1);
  }
});

describe("an unknown command", () => {
  test.each([
    ["nosuch"],
    ["nosuch", "--help"],
    ["--verbose", "nosuch", "-h"],
    ["dlq", "nosuch", "--help"],
    ["agents", "nosuch", "--help"],
  ])("%s %s %s is a usage error, also when it asks for help", async (...line) => {
    const args = line.filter((arg) => typeof arg === "string");
    const { code, out, err } = await khala(args);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain("Add --help to see its usage.");
  });

  test("help of a known one is printed, and a near miss is suggested", async () => {
    for (const args of [["--help"], ["dlq", "--help"], ["dlq", "list", "--help"], ["backup", "x", "--help"]])
      expect(await khala(args)).toMatchObject({ code: 0, out: expect.stringContaining("Usage: khala") });
    expect((await khala(["srve", "--help"])).err).toContain("Did you mean serve?");
  });
});

test.each(["dev", "serve"] as const)("%s takes the app as an argument or as an option", async (command) => {
  const env = { KHALA_AUTH_SECRETS: SECRETS, DATABASE_URL: "postgres://127.0.0.1:1/none" };
  for (const args of [["no-app.ts"], ["--app", "no-app.ts"]])
    expect(await khala([command, ...args, "--port", "0"], env)).toMatchObject({
      code: 2,
      err: expect.stringContaining("no-app.ts"),
    });
  expect(await khala([command, "a.ts", "--app", "b.ts"], env)).toMatchObject({
    code: 2,
    err: expect.stringContaining("twice"),
  });
});
