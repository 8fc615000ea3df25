import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { chownSync, closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { eventually } from "@khala/test-support/kit/eventually";
import { startProgram } from "@khala/test-support/processes/programs";
import pg from "pg";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Clock, systemClock } from "../kit/clock.ts";
import { isRunning } from "./data_folder.ts";
import {
  type EmbeddedOptions,
  embeddedBinaries,
  launch,
  startEmbeddedPostgres,
  unprivilegedUser,
} from "./embedded.ts";

// mkdtemp makes a folder that is closed to every other user: as root, these tests run PostgreSQL behind such a door.
let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "khala-embedded-"));
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

async function start(settings: readonly string[] = [], options: Partial<EmbeddedOptions> = {}) {
  const server = await startEmbeddedPostgres({
    dataDir,
    clock: systemClock,
    newPassword: randomUUID,
    settings,
    ...options,
  });
  return Object.assign(server, { [Symbol.asyncDispose]: () => server.stop() });
}

/** A process that ignores SIGINT, as one with a broken disk. */
const DEAF = `process.on("SIGINT", () => {}); setInterval(() => {}, 1_000); console.log("there");`;

async function ask(url: string, sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

test("starts in an empty folder, and again with the committed data", async () => {
  await using first = await start();
  await ask(first.url, "CREATE TABLE kept AS SELECT 1 AS one");
  const safety = "current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS waits";
  expect(await ask(first.url, `SELECT ${safety}`)).toEqual([{ fsync: "on", waits: "on" }]);
  await first.stop();
  expect(isRunning(first.pid)).toBe(false);
  await first.stop();

  await using second = await start();
  expect(await ask(second.url, "SELECT one FROM kept")).toEqual([{ one: 1 }]);
  expect(readFileSync(join(dataDir, "database_url"), "utf8").trim()).toBe(second.url);
});

test.runIf(process.platform === "linux" && process.getuid?.() === 0)(
  "as root it also starts when the programs are in a folder that only root can enter",
  async () => {
    const installed = dirname(dirname(embeddedBinaries().initdb));
    await cp(installed, join(dataDir, "native"), { recursive: true, verbatimSymlinks: true });
    const cluster = join(dataDir, "cluster");
    const user = unprivilegedUser()!;
    mkdirSync(cluster, { mode: 0o700 });
    chownSync(cluster, user.uid, user.gid);
    const log = openSync(join(dataDir, "log"), "a");
    const file = join(dataDir, "native", "bin", "initdb");
    const child = launch({ file, cluster, args: ["--no-sync", "--auth=trust"], user, log });
    const [code] = await once(child, "exit");
    closeSync(log);
    expect(code, readFileSync(join(dataDir, "log"), "utf8")).toBe(0);
  },
);

test("discards the remains of an interrupted first start", async () => {
  mkdirSync(join(dataDir, "pg.new"));
  writeFileSync(join(dataDir, "pg.new", "PG_VERSION"), "18\n");
  await using server = await start();
  expect(await ask(server.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
});

test("names the log of a server that cannot start", async () => {
  await expect(start(["shared_buffers=nonsense"])).rejects.toThrow(
    `Its log is ${join(dataDir, "postgres.log")}.`,
  );
  expect(readFileSync(join(dataDir, "postgres.log"), "utf8")).toContain("nonsense");
});

test("stops a server whose owner was killed, at the next start", async () => {
  await using owner = startProgram("own_postgres", dataDir);
  const orphan = JSON.parse(await owner.line()) as { url: string; pid: number };
  await ask(orphan.url, "CREATE TABLE kept AS SELECT 1 AS one");
  owner.child.kill("SIGKILL");
  await owner.ended;
  expect(isRunning(orphan.pid)).toBe(true);

  await using heir = startProgram("own_postgres", dataDir);
  const server = JSON.parse(await heir.line()) as { url: string; pid: number };
  await eventually("the orphan is gone", () => !isRunning(orphan.pid));
  expect(await ask(server.url, "SELECT one FROM kept")).toEqual([{ one: 1 }]);
  heir.child.kill("SIGTERM");
  expect(await heir.ended).toEqual({ code: 0, errors: "" });
});

test("kills an orphaned server that does not shut down", async () => {
  await (await start()).stop();
  const cluster = join(dataDir, "pg");
  const deaf = spawn(process.execPath, ["-e", DEAF, cluster], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(deaf, "exit");
  using _ = { [Symbol.dispose]: () => deaf.kill("SIGKILL") };
  await once(deaf.stdout, "data");
  writeFileSync(join(cluster, "postmaster.pid"), `${deaf.pid}\n`);
  const clock: Clock = { ...systemClock, after: (ms, fn) => systemClock.after(ms / 50, fn) };
  await using server = await start([], { clock });
  expect(await ended).toEqual([null, "SIGQUIT"]);
  expect(await ask(server.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
});

/** A process of the user that PostgreSQL runs as, which it may therefore signal. */
async function bystander(...args: readonly string[]) {
  const { uid, gid } = unprivilegedUser() ?? {};
  const child = spawn("sleep", ["600", ...args], { stdio: "ignore", ...(uid && { uid, gid: gid! }) });
  await once(child, "spawn");
  return { pid: child.pid!, child, [Symbol.dispose]: () => void child.kill("SIGKILL") };
}

test("starts after a crash although the old pid belongs to another process of the same user", async () => {
  const crashed = await start();
  await ask(crashed.url, "CREATE TABLE kept AS SELECT 1 AS one");
  process.kill(crashed.pid, "SIGQUIT");
  await eventually("PostgreSQL is gone", () => !isRunning(crashed.pid));
  const pidFile = join(dataDir, "pg", "postmaster.pid");
  using other = await bystander();
  const lines = (existsSync(pidFile) ? readFileSync(pidFile, "utf8") : "0\n").split("\n");
  writeFileSync(pidFile, [other.pid, ...lines.slice(1)].join("\n"));

  await using server = await start();
  expect(await ask(server.url, "SELECT one FROM kept")).toEqual([{ one: 1 }]);
  expect(other.child.exitCode ?? other.child.signalCode).toBe(null);
});

test("starts a server again that was killed, at the same address, and stops that one in the end", async () => {
  const lines: string[] = [];
  const restartLog = pino({}, { write: (line) => void lines.push(line) });
  await using server = await start([], { restartLog });
  const { url, pid } = server;
  await ask(url, "CREATE TABLE kept AS SELECT 1 AS one");
  process.kill(pid, "SIGKILL");
  await eventually("it answers again", () =>
    ask(url, "SELECT one FROM kept").then(
      () => server.pid !== pid,
      () => false,
    ),
  );
  await eventually("the log says so", () => lines.some((line) => line.includes("started PostgreSQL again")));
  expect(lines[0]).toContain("PostgreSQL stopped unexpectedly; restarting it");
  expect(server.url).toBe(url);
  const next = server.pid;
  await server.stop();
  expect(isRunning(next)).toBe(false);
});

test("stops the server when it cannot write down the address", async () => {
  await (await start()).stop();
  const address = join(dataDir, "database_url");
  await rm(address);
  mkdirSync(address);
  await expect(start()).rejects.toThrow("EISDIR");
  expect(existsSync(join(dataDir, "pg", "postmaster.pid"))).toBe(false);
});

test("a process that exits while the server starts leaves no server behind", async () => {
  await (await start()).stop();
  const module = join(import.meta.dirname, "embedded.ts");
  const program = `import { existsSync } from "node:fs";
    import { startEmbeddedPostgres } from ${JSON.stringify(module)};
    const [dataDir] = process.argv.slice(1);
    // The server writes it before it accepts connections.
    setInterval(() => existsSync(dataDir + "/pg/postmaster.pid") && process.exit(7), 1);
    const clock = { now: () => Date.now(), after(ms, fn) {
      const timer = setTimeout(fn, ms);
      return () => clearTimeout(timer);
    } };
    await startEmbeddedPostgres({ dataDir, clock, newPassword: () => "" });`;
  const args = ["--conditions=khala-source", "--input-type=module", "-e", program, dataDir];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "inherit", "inherit"] });
  expect(await once(child, "exit")).toEqual([7, null]);
  await eventually("PostgreSQL is gone", () => !existsSync(join(dataDir, "pg", "postmaster.pid")));
});

test("refuses a data folder in use, names its process, and does not disturb it", async () => {
  await using first = startProgram("own_postgres", dataDir);
  const server = JSON.parse(await first.line()) as { url: string };
  await using second = startProgram("own_postgres", dataDir);
  const { code, errors } = await second.ended;
  expect(code).not.toBe(0);
  expect(errors).toContain(`is in use by the process ${first.child.pid}. Stop it, or set KHALA_DATA_DIR`);
  expect(await ask(server.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
  first.child.kill("SIGTERM");
  await first.ended;
});
