import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Service } from "../services/service.ts";
import { findRedis, type RedisBinary, startRedisServer } from "./server.ts";

const run = promisify(execFile);

/**
 * Redis: the server that KHALA_TEST_REDIS_URL names, one from this machine, from a container, or, where CI=true or
 * KHALA_TEST_INSTALL=1, from the package manager. Its environment is REDIS_URL, and BINARY if tests may start more.
 */
export function redis(): Service {
  const given = process.env.KHALA_TEST_REDIS_URL;
  let binary: RedisBinary | undefined;
  return {
    name: "redis",

    async available() {
      binary = await findRedis();
      if (binary || given) return undefined;
      const { CI, KHALA_TEST_INSTALL } = process.env;
      if (CI !== "true" && KHALA_TEST_INSTALL !== "1")
        return "there is no redis-server or valkey-server. Install one, start Docker, name a server in KHALA_TEST_REDIS_URL, or set KHALA_TEST_INSTALL=1";
      const problem = await install();
      binary = await findRedis();
      return binary ? undefined : problem;
    },

    async start() {
      const more: Record<string, string> = binary ? { BINARY: JSON.stringify(binary) } : {};
      if (given) return { env: { ...more, REDIS_URL: given }, stop: async () => {} };
      const server = await startRedisServer(binary!);
      return {
        env: { ...more, REDIS_URL: server.url },
        stop: async () => server[Symbol.asyncDispose](),
      };
    },
  };
}

/** Installs the package without starting the system's own service; answers what went wrong. */
async function install(): Promise<string> {
  const options = {
    timeout: 180_000,
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" },
  };
  const asRoot = process.getuid?.() === 0 ? [] : ["sudo", "-n"];
  const apt = async (...args: string[]) => {
    const [command, ...rest] = [...asRoot, "apt-get", ...args];
    await run(command!, rest, options);
  };
  try {
    await apt("install", "-y", "--no-install-recommends", "redis-server").catch(async () => {
      await apt("update");
      await apt("install", "-y", "--no-install-recommends", "redis-server");
    });
    return "the package was installed, and has no redis-server";
  } catch (error) {
    return `the package manager could not install it: ${(error as Error).message.split("\n").slice(0, 3).join(" ")}`;
  }
}
