// After every install: puts the Node that came with the lock where npm's scripts look, then builds the page.
// Plain JavaScript, because the Node that runs it may be one that cannot read TypeScript yet.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, symlinkSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const LEAST_NODE = 24;
const root = process.argv[2] ?? fileURLToPath(new URL("..", import.meta.url));
const modules = join(root, "node_modules");
const link = join(modules, ".bin", "node");

/** The Node of the lock for this machine; undefined where there is none for it. */
function lockedNode() {
  const { optionalDependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const executable = process.platform === "win32" ? "node.exe" : "node";
  return Object.keys(optionalDependencies)
    .map((name) => join(modules, name, "bin", executable))
    .find((path) => existsSync(path));
}

const locked = lockedNode();
if (!locked && Number.parseInt(process.versions.node, 10) < LEAST_NODE) {
  console.error(
    `✗ Khala runs on Node ${LEAST_NODE}, which the install brings along on most machines, but not on this one ` +
      `(${process.platform}, ${process.arch}).\n  Install Node ${LEAST_NODE} or later, then: npm ci`,
  );
  process.exit(1);
}
// npm 10 takes the link away with the packages of other systems, since each of them has a program of this name.
if (locked && process.platform !== "win32" && !existsSync(link))
  symlinkSync(relative(join(modules, ".bin"), locked), link);
const built = spawnSync(locked ?? process.execPath, [join(root, "scripts/build/dashboard.ts")], {
  stdio: "inherit",
});
if (built.error) throw built.error;
process.exitCode = built.status ?? 1;
