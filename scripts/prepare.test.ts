import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";

test("links the lockfile's Node if npm left out the link, and builds the page with it", () => {
  const root = mkdtempSync(join(tmpdir(), "khala-prepare-"));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  const modules = join(root, "node_modules");
  const optionalDependencies = { "node-of-another-system": "24.0.0", "node-of-this-system": "24.0.0" };
  writeFileSync(join(root, "package.json"), JSON.stringify({ optionalDependencies }));
  for (const folder of [".bin", "node-of-this-system/bin"])
    mkdirSync(join(modules, folder), { recursive: true });
  symlinkSync(process.execPath, join(modules, "node-of-this-system/bin/node"));
  mkdirSync(join(root, "scripts/build"), { recursive: true });
  writeFileSync(join(root, "scripts/build/dashboard.ts"), "console.log(process.argv0 as string);");
  const prepare = join(import.meta.dirname, "prepare.js");
  for (const _ of ["missing", "there already"]) {
    const output = execFileSync(process.execPath, [prepare, root], { encoding: "utf8" });
    expect(output.trim()).toBe(join(modules, "node-of-this-system/bin/node"));
    expect(readlinkSync(join(modules, ".bin/node"))).toBe("../node-of-this-system/bin/node");
  }
});
