import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";
import { loadOrCreateDevKey } from "./dev_key.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "khala-dev-key-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});
const newSecret = () => randomBytes(32);

test("makes the key once, readable by its owner only, and finds it again", () => {
  const file = join(folder, "data", "dev.key");
  const made = loadOrCreateDevKey(file, newSecret);
  expect(made.secret).toHaveLength(32);
  expect(made.kid).toMatch(/^dev-[0-9a-f]{8}$/);
  expect(loadOrCreateDevKey(file, newSecret)).toEqual(made);
  if (process.platform !== "win32") expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readdirSync(join(folder, "data"))).toEqual(["dev.key"]);
});

test("a process that is slightly later uses the key of the first one", () => {
  const file = join(folder, "dev.key");
  const first = randomBytes(32);
  // The other process wins between our look and our write.
  const late = loadOrCreateDevKey(file, () => {
    loadOrCreateDevKey(file, () => first);
    return newSecret();
  });
  expect(late.secret).toEqual(first);
  expect(readdirSync(folder)).toEqual(["dev.key"]);
});

test("processes that start at once agree on one key", async () => {
  const file = join(folder, "dev.key");
  const script = `
    import { randomBytes } from "node:crypto";
    import { loadOrCreateDevKey } from ${JSON.stringify(new URL("./dev_key.ts", import.meta.url).href)};
    process.stdout.write(loadOrCreateDevKey(${JSON.stringify(file)}, () => randomBytes(32)).secret.toString("hex"));`;
  const start = () =>
    promisify(execFile)(process.execPath, ["--conditions=khala-source", "--input-type=module", "-e", script]);
  const answers = await Promise.all(Array.from({ length: 4 }, start));
  expect(new Set(answers.map(({ stdout }) => stdout))).toEqual(
    new Set([loadOrCreateDevKey(file, newSecret).secret.toString("hex")]),
  );
});

test.each(["", "short", "not base64 at all, but long enough to look like a key of thirty-two bytes!"])(
  "refuses a damaged key file, and says what to do: %j",
  (content) => {
    const file = join(folder, "dev.key");
    writeFileSync(file, content);
    expect(() => loadOrCreateDevKey(file, newSecret)).toThrow(/damaged\. Delete it/);
  },
);

test("does not store a secret that is too short", () => {
  expect(() => loadOrCreateDevKey(join(folder, "dev.key"), () => randomBytes(16))).toThrow(/32 bytes/);
  expect(readdirSync(folder)).toEqual([]);
});
