import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { must, ROOT, run } from "../../scripts/run.ts";

// Built once, for both tests: they share the folder that it goes to.
beforeAll(async () => {
  const build = await run("npm", ["run", "--silent", "build"]);
  expect(build, build.output).toMatchObject({ code: 0 });
}, 300_000);

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
  const exports: string[] = [];
  const packed = (await readdir(join(ROOT, "dist"))).filter((name) => name.endsWith(".tgz"));
  for (const tarball of packed) {
    const name = tarball.replace(/^(?:khala-)?(.*)-\d.*$/, "$1");
    const home = join(folder, "node_modules", tarball.startsWith("khala-") ? "@khala" : ".", name);
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

// As a new user: an empty folder outside of this repository, packed packages, npm.
let place: string;
const started: ChildProcess[] = [];
beforeAll(async () => {
  place = await mkdtemp(join(tmpdir(), "khala-create-"));
});
afterAll(async () => {
  for (const child of started) if (isRunning(child)) await stopped(child);
  await rm(place, { recursive: true, force: true });
});

/** Ends a program and what it started; npm may be gone before its script is. */
async function stopped(child: ChildProcess): Promise<void> {
  process.kill(-child.pid!, "SIGINT");
  await expect.poll(() => isRunning(child), { timeout: 30_000 }).toBe(false);
}

/** Whether anything of its process group is left. */
function isRunning(child: ChildProcess): boolean {
  try {
    return process.kill(-child.pid!, 0);
  } catch {
    return false;
  }
}

function start(command: string, args: readonly string[], cwd: string, env: Record<string, string> = {}) {
  const child = spawn(command, args, {
    cwd,
    detached: true,
    env: clean(env),
    stdio: ["ignore", "pipe", "pipe"],
  });
  started.push(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (chunk) => (output += chunk));
  return { child, output: () => output };
}

/** Without what npm and this repository's test run have put into the environment. */
function clean(env: Record<string, string>): Record<string, string> {
  const { PATH = "", HOME = "", TMPDIR } = process.env;
  const path = PATH.split(":").filter((part) => !part.startsWith(ROOT));
  return { PATH: path.join(":"), HOME, ...(TMPDIR && { TMPDIR }), ...env };
}

test("npm create khala makes an app that runs, and whose client has its types", {
  timeout: 300_000,
}, async () => {
  const packages = join(ROOT, "dist");
  const creator = (await readdir(packages)).find((file) => file.startsWith("create-khala"))!;
  // What `npm create khala` does, with the packed package in the place of the registry's.
  await must(
    "npm",
    [
      "exec",
      "--yes",
      "--package",
      join(packages, creator),
      "--",
      "create-khala",
      "my-app",
      "--packages",
      packages,
    ],
    place,
  );
  const app = join(place, "my-app");
  expect(await readdir(app)).toEqual(
    expect.arrayContaining([".gitignore", "app.ts", "package.json", "watch.ts"]),
  );
  await must("npm", ["install", "--no-audit", "--no-fund"], app);
  await must("npm", ["run", "check"], app);

  const dev = start("npm", ["run", "dev", "--", "--port", "0"], app);
  await expect.poll(() => dev.output(), { timeout: 60_000 }).toContain("Khala is ready");
  const url = /ready.* at (http:\S+)/.exec(dev.output())![1]!;
  const watch = start("npm", ["run", "watch"], app, { KHALA_URL: url });
  const khala = (...args: string[]) => must("npx", ["khala", ...args, "--url", url], app);
  await khala("append", "job", "first", "job.started", '{"title":"My first job"}');
  await khala("append", "job", "first", "job.step", '{"name":"think"}');
  await khala("append", "job", "first", "job.done");
  await expect
    .poll(() => watch.output(), { timeout: 30_000 })
    .toContain("progress:first My first job ✓ think");
  expect(await khala("publish", "Note", "--payload", '{"text":"three short words"}')).toContain("published");
  expect(await khala("chat", "How is the weather in Oslo?")).not.toBe("");
  expect((await fetch(url)).headers.get("content-type")).toContain("text/html");
  await stopped(watch.child);
  await stopped(dev.child);
});

test("a folder that is not empty is refused, and left as it was", async () => {
  const full = await mkdtemp(join(place, "full-"));
  await writeFile(join(full, "mine.txt"), "mine");
  const command = ["--conditions=khala-source", join(ROOT, "packages/cli/src/main.ts"), "init", full];
  const { code, output } = await run(process.execPath, command);
  expect({ code, output }).toMatchObject({ code: 2, output: expect.stringContaining("is not empty") });
  expect(await readdir(full)).toEqual(["mine.txt"]);
});
