import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { eventually } from "@khala/test-support/kit/eventually";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { startKhala } from "@khala/test-support/processes/processes";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 300_000 });

const ROOT = join(import.meta.dirname, "../..");
const SERVER = join(ROOT, "packages/server/src/index.ts");

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-orphans-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const pidFile = () => join(folder, "postgres/pg/postmaster.pid");
const noServer = () => eventually("PostgreSQL is gone", () => !existsSync(pidFile()));

type Dev = ChildProcessByStdio<null, Readable, Readable>;

/** Runs `khala dev` with an app of this source; `meanwhile` gets the process once its PostgreSQL is there. */
async function dev(app: string, meanwhile: (child: Dev) => void = () => {}) {
  const file = join(folder, "app.ts");
  await writeFile(file, `import { defineApp, runSummaries } from ${JSON.stringify(SERVER)};\n${app}`);
  const args = ["--conditions=khala-source", join(ROOT, "packages/cli/src/main.ts"), "dev", "--app", file];
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...bareEnv(), KHALA_PORT: "0", KHALA_DATA_DIR: folder, PID_FILE: pidFile() },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      output += chunk;
    });
  const closed = once(child, "close");
  let there = false;
  await eventually("PostgreSQL is there, or the start has failed", () => {
    there ||= existsSync(pidFile());
    return there || child.exitCode !== null;
  });
  if (there) meanwhile(child);
  const [code] = (await closed) as [number | null];
  return { code, output, there };
}

const APP = "export default defineApp({ models: [runSummaries] });";

/** A table of Khala's own, which the first start on the database finds out. */
const WRONG_TABLE = `export default defineApp({ models: [{ ...runSummaries, table: "leases" }] });`;

test("an app that the database refuses leaves no PostgreSQL behind, also after Ctrl-C", async () => {
  const { code, output, there } = await dev(WRONG_TABLE);
  expect([code, there], output).toEqual([1, true]);
  expect(output).toContain("khala: ");
  await noServer();
  const interrupted = await dev(WRONG_TABLE, (child) => child.kill("SIGINT"));
  expect(interrupted.code, interrupted.output).toBe(1);
  await noServer();
});

test("refuses a wrong app definition before anything starts", async () => {
  const { code, output, there } =
    await dev(`import { defineModel, defineStream } from ${JSON.stringify(SERVER)};
    const tasks = defineStream({ kind: "task", path: "/tasks", scope: "tasks", events: { "task.added": { title: "text" } } });
    export default defineApp({ models: [runSummaries] });`);
  expect([code, there], output).toEqual([1, false]);
  expect(output).toContain('The event "task.added" of the stream "task" needs a schema');
  await noServer();
});

test("an app that throws while the server starts leaves no PostgreSQL behind", async () => {
  const { code, output, there } = await dev(`import { existsSync } from "node:fs";
    setInterval(() => { if (existsSync(process.env.PID_FILE)) throw new Error("a bug of the app"); }, 1);
    export default defineApp({ models: [runSummaries] });`);
  expect([code, there], output).toEqual([1, true]);
  expect(output).toContain("a bug of the app");
  await noServer();
});

test("Ctrl-C during the start stops everything started", async () => {
  const { code, output } = await dev(APP, (child) => child.kill("SIGINT"));
  expect(code, output).toBe(0);
  await noServer();
});

test("a server whose output nobody reads any more stops as well", async () => {
  const { code } = await dev(APP, (child) => {
    child.stdout.destroy();
    child.stderr.destroy();
    child.kill("SIGTERM");
  });
  expect(code).toBe(0);
  await noServer();
});

test("khala survives a kill of its PostgreSQL, and the next start stops one that a kill left behind", async () => {
  const start = () => startKhala({ command: "dev", env: { KHALA_DATA_DIR: folder } });
  await using first = await start();
  const before = serverPid();
  process.kill(before, "SIGKILL");
  await eventually("it is ready again", async () => {
    const { status } = await fetch(`${first.url}/readyz`);
    return status === 200 && existsSync(pidFile()) && serverPid() !== before;
  });
  const orphan = serverPid();
  await first.end("SIGKILL");
  expect(serverPid()).toBe(orphan);

  await using second = await start();
  expect(serverPid()).not.toBe(orphan);
  expect(await second.end("SIGTERM"), second.output()).toBe(0);
  await noServer();
});

function serverPid(): number {
  return Number(readFileSync(pidFile(), "utf8").split("\n")[0]);
}
