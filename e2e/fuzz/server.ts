import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FuzzedRoute } from "./http_fuzz.ts";
import type { FuzzedChannel } from "./socket_fuzz.ts";

interface Started {
  readonly url: string;
  readonly routes: readonly FuzzedRoute[];
  readonly channels: readonly FuzzedChannel[];
}

export interface Memory {
  readonly heap: number;
  readonly rss: number;
}

/** A server in a process of its own. */
export interface FuzzedServer extends Started {
  readonly name: string;
  alive(): boolean;
  /** After a garbage collection. */
  memory(): Promise<Memory>;
  /** Stops it in order; answers its exit code, and how many of its processes are left. */
  stop(): Promise<{ readonly code: number | null; readonly orphans: number }>;
}

/** Starts a server with a data folder of its own. */
export async function startFuzzedServer(
  name: string,
  secret: Buffer,
  env: Readonly<Record<string, string>>,
): Promise<FuzzedServer> {
  const folder = await mkdtemp(join(tmpdir(), "khala-fuzz-"));
  const server = fork(join(import.meta.dirname, "target.ts"), [], {
    execArgv: ["--conditions=khala-source", "--expose-gc"],
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    env: {
      ...process.env,
      KHALA_PORT: "0",
      KHALA_DATA_DIR: folder,
      KHALA_LOG_LEVEL: "error",
      KHALA_AUTH_SECRETS: `fuzz:${secret.toString("base64")}`,
      ...env,
    },
  });
  const ended = once(server, "exit").then(([code]) => code as number | null);
  const heard = async <T>(): Promise<T> => {
    const [message] = await Promise.race([
      once(server, "message"),
      ended.then((code) => Promise.reject(new Error(`The server on ${name} ended with ${code}.`))),
    ]);
    return message as T;
  };
  const started = await heard<Started>();
  return {
    ...started,
    name,
    alive: () => server.exitCode === null && server.signalCode === null,
    memory() {
      server.send("memory");
      return heard<Memory>();
    },
    async stop() {
      server.kill("SIGTERM");
      const code = await ended;
      const orphans = processesIn(folder);
      await rm(folder, { recursive: true, force: true });
      return { code, orphans };
    },
  };
}

/** Processes whose command names the folder: the server's PostgreSQL. */
function processesIn(folder: string): number {
  const all = execFileSync("ps", ["-eo", "args"], { encoding: "utf8" });
  return all.split("\n").filter((line) => line.includes(folder)).length;
}
