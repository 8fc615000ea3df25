import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { Redis } from "ioredis";
import { freePort } from "../kit/free_port.ts";
import { tempFolder } from "../kit/temp_folder.ts";

/** A Redis in a process of its own, with an append-only file that is synced every second. */
export interface RedisServer extends AsyncDisposable {
  readonly pid: number;
  readonly url: string;
  /** How often each command was called so far, those inside scripts included. */
  commands(): Promise<CommandCounts>;
  /** Connections of Khala's servers and writers. */
  khalaConnections(): Promise<number>;
  usedBytes(): Promise<number>;
}

/** Calls by command, such as `evalsha` or `xinfo|groups`. */
export type CommandCounts = ReadonlyMap<string, number>;

/** How often a command was called between two looks. */
export function calls(before: CommandCounts, after: CommandCounts, command: string): number {
  return (after.get(command) ?? 0) - (before.get(command) ?? 0);
}

/** What our scripts call inside Redis, which costs no round trip. */
const IN_SCRIPTS = [
  "xadd",
  "xrange",
  "hset",
  "hmget",
  "exists",
  "pexpire",
  "pttl",
  "publish",
  "xinfo|groups",
];
const MORE_IN_SCRIPTS = ["xgroup|setid", "xgroup|create", "del", "xlen", "xtrim"];
/** What this benchmark itself asks. */
const OWN = ["info", "client|list"];

/** Commands that clients sent between two looks; `scripted` ones send scripts alone. */
export function sent(before: CommandCounts, after: CommandCounts, scripted: boolean): number {
  const left = new Set(scripted ? [...OWN, ...IN_SCRIPTS, ...MORE_IN_SCRIPTS] : OWN);
  let sum = 0;
  for (const command of after.keys()) if (!left.has(command)) sum += calls(before, after, command);
  return sum;
}

/** The version of the Redis that is installed, or undefined when there is none. */
export function redisVersion(): string | undefined {
  try {
    const text = execFileSync("redis-server", ["--version"], { encoding: "utf8", timeout: 10_000 });
    return `Redis ${/v=(\S+)/.exec(text)?.[1] ?? text.trim()}`;
  } catch {
    return undefined;
  }
}

/** Starts a Redis on loopback, empty. */
export async function startRedis(): Promise<RedisServer> {
  const folder = tempFolder("redis");
  const port = await freePort();
  const args = ["--port", `${port}`, "--bind", "127.0.0.1", "--save", "", "--dir", folder.path];
  args.push("--appendonly", "yes", "--appendfsync", "everysec", "--maxclients", "10000");
  const child = spawn("redis-server", args, { stdio: ["ignore", "ignore", "inherit"] });
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  folder.removeLast();
  const client = new Redis({
    port,
    host: "127.0.0.1",
    protocol: 2,
    connectionName: "bench",
    maxRetriesPerRequest: null,
    retryStrategy: (attempt) => (attempt > 200 ? null : 50),
  });
  // It is not there yet, or was killed at the end.
  client.on("error", () => {});
  await client.ping();
  return {
    pid: child.pid!,
    url: `redis://127.0.0.1:${port}`,
    async commands() {
      const counts = new Map<string, number>();
      for (const [, name, count] of (await client.info("commandstats")).matchAll(
        /cmdstat_(\S+?):calls=(\d+)/g,
      ))
        counts.set(name!, Number(count));
      return counts;
    },
    async khalaConnections() {
      const list = (await client.client("LIST")) as string;
      return list.split("\n").filter((line) => line.includes(" name=khala ")).length;
    },
    async usedBytes() {
      return Number(/used_memory:(\d+)/.exec(await client.info("memory"))![1]);
    },
    async [Symbol.asyncDispose]() {
      client.disconnect();
      process.off("exit", kill);
      if (child.exitCode === null && child.signalCode === null) {
        const gone = once(child, "exit");
        kill();
        await gone;
      }
      folder[Symbol.dispose]();
    },
  };
}
