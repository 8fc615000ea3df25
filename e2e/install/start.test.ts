import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryOf } from "@khala/testing/processes/memory";
import { startKhala } from "@khala/testing/processes/processes";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 300_000 });

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-start-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const dev = (env: Record<string, string> = {}) =>
  startKhala({ command: "dev", env: { KHALA_DATA_DIR: folder, ...env } });

test("khala dev starts from nothing, ends cleanly on SIGTERM, and gives its data folder back", async () => {
  await using khala = await dev();
  expect(await khala.end("SIGTERM"), khala.output()).toBe(0);
  const left = await readdir(folder, { recursive: true });
  expect(left.filter((name) => /\block\.\d+$/.test(name))).toEqual([]);
  await using again = await dev();
  expect(await again.end("SIGINT"), again.output()).toBe(0);
});

test("khala dev starts again on the folder of one that was killed", async () => {
  await using killed = await dev();
  await killed.end("SIGKILL");
  await using heir = await dev();
  expect((await fetch(`${heir.url}/healthz`)).status).toBe(200);
  await heir.end("SIGTERM");
});

test("a second start on a used data folder or a used port says who is in the way, and disturbs nobody", async () => {
  await using first = await dev();
  await expect(dev()).rejects.toThrow(
    new RegExp(`is in use by the process ${first.pid}\\. Stop it, or set KHALA_DATA_DIR`),
  );

  const other = await mkdtemp(join(tmpdir(), "khala-start-"));
  const { port } = new URL(first.url);
  await expect(dev({ KHALA_DATA_DIR: other, KHALA_PORT: port })).rejects.toThrow(
    new RegExp(`${port}.*KHALA_PORT`),
  );
  await rm(other, { recursive: true, force: true });

  expect((await fetch(`${first.url}/readyz`)).status).toBe(200);
  await first.end("SIGTERM");
});

test.runIf(process.platform === "linux")(
  "all processes of khala dev together take less than 250 MB at rest",
  async () => {
    await using khala = await dev();
    expect(await memoryOf(khala.pid)).toBeLessThan(250e6);
    await khala.end("SIGTERM");
  },
);
