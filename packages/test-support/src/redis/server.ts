import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { access, constants, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { Redis } from "ioredis";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../processes/ports.ts";

const run = promisify(execFile);
const IMAGE = "docker.io/library/redis:7";

/** How a Redis server is started on this machine. */
export interface RedisBinary {
  readonly command: string;
  /** Runs it in a container of this engine. */
  readonly container?: string;
}

/** A server of a test's own, which it may kill and start again on the same port and folder. */
export interface RedisServer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly dir: string;
  /** A client for the test's own commands. */
  readonly client: Redis;
  /** Kills it, as a power cut would. */
  kill(): Promise<void>;
  /** Starts it again on its files. */
  restart(): Promise<void>;
}

export interface RedisServerOptions {
  readonly port?: number;
  readonly dir?: string;
  /** Further settings, as on its command line. */
  readonly settings?: readonly string[];
}

/** Looks for redis-server or valkey-server, then for a container engine that works. */
export async function findRedis(): Promise<RedisBinary | undefined> {
  for (const name of ["redis-server", "valkey-server"])
    for (const folder of (process.env.PATH ?? "").split(delimiter)) {
      const command = join(folder, name);
      if (folder && (await executable(command))) return { command };
    }
  for (const container of ["docker", "podman"]) {
    try {
      await run(container, ["run", "--rm", IMAGE, "redis-server", "--version"], { timeout: 60_000 });
      return { command: "redis-server", container };
    } catch {
      // Not installed, not running, or without the image: try the next one.
    }
  }
  return undefined;
}

async function executable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Starts a server on loopback that keeps its data in an append-only file of its folder. */
export async function startRedisServer(
  binary: RedisBinary,
  options: RedisServerOptions = {},
): Promise<RedisServer> {
  const port = options.port ?? (await freePort());
  const dir = options.dir ?? (await mkdtemp(join(tmpdir(), "khala-redis-")));
  const launch = () => launchRedis(binary, { port, dir, settings: options.settings ?? [] });
  let server = await launch();
  const client = new Redis({ port, host: "127.0.0.1", retryStrategy: () => 20 });
  // While a test has its server killed.
  client.on("error", () => {});
  await client.ping();
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    dir,
    client,
    kill: () => server.end("SIGKILL"),
    async restart() {
      server = await launch();
      await client.ping();
    },
    async [Symbol.asyncDispose]() {
      client.disconnect();
      await server.end("SIGKILL");
      if (options.dir === undefined) await rm(dir, { recursive: true, force: true });
    },
  };
}

async function launchRedis(
  { command, container }: RedisBinary,
  { port, dir, settings }: Required<RedisServerOptions>,
) {
  const args = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--dir", dir];
  args.push("--appendonly", "yes", "--appendfsync", "everysec", "--daemonize", "no", ...settings);
  const name = `khala-test-${randomUUID()}`;
  const inContainer = [
    "run",
    "--rm",
    "--name",
    name,
    "--network",
    "host",
    "-v",
    `${dir}:${dir}`,
    IMAGE,
    command,
  ];
  const child = container
    ? spawn(container, [...inContainer, ...args], { stdio: ["ignore", "pipe", "pipe"] })
    : spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => {
      output = `${output}${chunk}`.slice(-4_000);
    });
  const exited = once(child, "exit");
  // An aborted run leaves no server behind.
  const abandon = () => child.kill("SIGKILL");
  process.once("exit", abandon);
  await eventually("Redis accepts connections", () => {
    if (gone(child)) throw new Error(`Redis did not start:\n${output}`);
    return output.includes("eady to accept connections");
  });
  return {
    async end(signal: NodeJS.Signals) {
      process.removeListener("exit", abandon);
      if (gone(child)) return;
      if (container) await run(container, ["kill", name]);
      else child.kill(signal);
      await exited;
    },
  };
}

function gone(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}
