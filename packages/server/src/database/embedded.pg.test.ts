import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { chownSync, closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { startProgram } from "@khala/testing/processes/programs";
import pg from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { systemClock } from "../kit/clock.ts";
import { isRunning } from "./data_folder.ts";
import { embeddedBinaries, launch, startEmbeddedPostgres, unprivilegedUser } from "./embedded.ts";

// mkdtemp makes a folder that is closed to every other user: as root, these tests run PostgreSQL behind such a door.
let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "khala-embedded-"));
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

async function start(settings: readonly string[] = [], clock = systemClock) {
  const server = await startEmbeddedPostgres({
    dataDir,
    clock,
    newPassword: randomUUID,
    settings,
  });
  return { ...server, [Symbol.asyncDispose]: server.stop };
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
  "as root it also starts when the programs themselves are behind a closed door, as in a clone that is root's alone",
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
  expect(isRunning(orphan.pid)).toBe(false);
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
  await using server = await start([], { ...systemClock, after: (ms, fn) => systemClock.after(ms / 50, fn) });
  expect(await ended).toEqual([null, "SIGQUIT"]);
  expect(await ask(server.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
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
