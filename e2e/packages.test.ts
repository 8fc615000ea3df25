import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { must, ROOT, run } from "../scripts/run.ts";

// Inside node_modules, so that the packages of others are found and ours are the packed ones, not the workspace's.
let folder: string;
beforeAll(async () => {
  await mkdir(join(ROOT, "node_modules/.cache"), { recursive: true });
  folder = await mkdtemp(join(ROOT, "node_modules/.cache/packed-"));
}, 10_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

test("packages are built and publishable, and what is packed works without this repository", {
  timeout: 120_000,
}, async () => {
  const build = await run("npm", ["run", "--silent", "build"]);
  expect(build, build.output).toMatchObject({ code: 0 });

  const exports: string[] = [];
  for (const tarball of await readdir(join(ROOT, "dist"))) {
    const home = join(folder, "node_modules/@khala", tarball.replace(/^khala-(.*)-\d.*$/, "$1"));
    await mkdir(home, { recursive: true });
    await must("tar", ["-xzf", join(ROOT, "dist", tarball), "--strip-components=1", "-C", home]);
    // What npm could not place at the top lies beside the package.
    const own = join(ROOT, "packages", basename(home), "node_modules");
    if (existsSync(own)) await symlink(own, join(home, "node_modules"));
    const manifest = JSON.parse(await readFile(join(home, "package.json"), "utf8"));
    for (const path of Object.keys(manifest.exports ?? {})) exports.push(join(manifest.name, path));
  }
  expect(exports).toContain("@khala/server");

  const uses = exports.map(
    (name, i) => `import * as m${i} from "${name}"; export const n${i}: object = m${i};`,
  );
  await writeFile(join(folder, "user.mts"), uses.join("\n"));
  const strict = [
    "--ignoreConfig",
    "--strict",
    "--module",
    "nodenext",
    "--target",
    "es2025",
    "--types",
    "node",
  ];
  expect(await must("tsc", [...strict, "--skipLibCheck", "user.mts"], folder)).toBe("");
  expect(await must(process.execPath, ["user.mjs"], folder)).toBe("");
  const help = await must(process.execPath, ["node_modules/@khala/cli/dist/main.js", "--help"], folder);
  expect(help).toContain("Usage: khala");
});
