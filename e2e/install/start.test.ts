import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryOf } from "@khala/test-support/processes/memory";
import { startKhala } from "@khala/test-support/processes/processes";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 300_000 });

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-start-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const dev = (env: Record<string, string> = {}) =>
  startKhala({ command: "dev", env: { KHALA_DATA_DIR: join(folder, "data"), ...env } });

test("khala dev starts from nothing, locks its folder and port, and starts again after a kill", async () => {
  await using first = await dev();
  if (process.platform === "linux") expect(await memoryOf(first.pid)).toBeLessThan(250e6);

  const { port } = new URL(first.url);
  await Promise.all([
    expect(dev()).rejects.toThrow(
      new RegExp(
        `khala: The data folder .* is in use by the process ${first.pid}\\. Stop it, or set KHALA_DATA_DIR`,
      ),
    ),
    expect(dev({ KHALA_DATA_DIR: join(folder, "other"), KHALA_PORT: port })).rejects.toThrow(
      new RegExp(`khala: Port ${port} on 127\\.0\\.0\\.1 is in use\\..*KHALA_PORT`),
    ),
  ]);
  expect((await fetch(`${first.url}/readyz`)).status).toBe(200);

  await first.end("SIGKILL");
  await using next = await dev();
  expect((await fetch(`${next.url}/healthz`)).status).toBe(200);
  expect(await next.end("SIGTERM"), next.output()).toBe(0);
  const left = await readdir(join(folder, "data"), { recursive: true });
  expect(left.filter((name) => /\block\.\d+$/.test(name))).toEqual([]);
});
