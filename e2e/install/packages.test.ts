import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { afterAll, beforeAll, expect, test } from "vitest";
import { must, ROOT, run } from "../../scripts/run.ts";
import { packedPackages } from "./support/packed.ts";

beforeAll(packedPackages, 300_000);

// Inside node_modules, so that the packages of others are found and ours are the packed ones, not the workspace's.
let folder: string;
beforeAll(async () => {
  await mkdir(join(ROOT, "node_modules/.cache"), { recursive: true });
  folder = await mkdtemp(join(ROOT, "node_modules/.cache/packed-"));
}, 10_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

test("packages can be built and published, and work without this repository", {
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

test("a server installs without Node, Redis and exporters, and names the package that a setting needs", {
  timeout: 240_000,
}, async () => {
  const place = await mkdtemp(join(tmpdir(), "khala-install-"));
  const dist = join(ROOT, "dist");
  const tarballs = (await readdir(dist))
    .filter((name) => name.endsWith(".tgz"))
    .map((name) => join(dist, name));
  await writeFile(join(place, "package.json"), '{ "private": true }');
  const install = ["install", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts", ...tarballs];
  try {
    await must("npm", install, place);
    const modules = join(place, "node_modules");
    const names = await readdir(modules);
    expect(names.filter((name) => /^(ioredis|node-|node$)/.test(name))).toEqual([]);
    const size = Number((await must("du", ["-sm", modules], place)).split("\t")[0]);
    // 60 MB are PostgreSQL.
    expect(size).toBeLessThan(150);
    const khala = join(modules, "@khala/cli/dist/main.js");
    const dev = (env: Record<string, string>) => {
      const settings = { ...bareEnv(), KHALA_PORT: "0", ...env };
      return run(process.execPath, [khala, "dev"], place, { env: settings, timeout: 60_000 });
    };
    const needs = "is set, but the package";
    const redis = await dev({ REDIS_URL: "redis://127.0.0.1:1" });
    expect(redis.output).toContain(
      `REDIS_URL ${needs} ioredis is not installed. Run \`npm install ioredis\`.`,
    );
    const traces = await dev({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" });
    expect(traces.output).toContain(
      `OTEL_EXPORTER_OTLP_ENDPOINT ${needs} @opentelemetry/exporter-trace-otlp-http`,
    );
    const program = `
      import { createKhala, readConfig } from "@khala/server";
      const config = readConfig({ KHALA_PORT: "0", KHALA_LOG_LEVEL: "silent", KHALA_DATA_DIR: "data" });
      const khala = await createKhala({}, { config, dev: true });
      console.log((await fetch(khala.url + "/readyz")).status);
      await khala.stop();`;
    await writeFile(join(place, "start.mjs"), program);
    expect(await must(process.execPath, ["start.mjs"], place)).toBe("200\n");
  } finally {
    await rm(place, { recursive: true, force: true });
  }
});

test("refuses a folder that is not empty, and leaves it unchanged", async () => {
  const full = await mkdtemp(join(folder, "full-"));
  await writeFile(join(full, "mine.txt"), "mine");
  const command = ["--conditions=khala-source", join(ROOT, "packages/cli/src/main.ts"), "init", full];
  const { code, output } = await run(process.execPath, command);
  expect({ code, output }).toMatchObject({ code: 2, output: expect.stringContaining("is not empty") });
  expect(await readdir(full)).toEqual(["mine.txt"]);
});
