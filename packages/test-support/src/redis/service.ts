import { installPackage, mayInstall } from "../services/install_package.ts";
import type { Service } from "../services/service.ts";
import { findRedis, type RedisBinary, startRedisServer } from "./server.ts";

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
      if (!mayInstall())
        return "there is no redis-server or valkey-server. Install one, start Docker, name a server in KHALA_TEST_REDIS_URL, or set KHALA_TEST_INSTALL=1";
      const problem = await installPackage("redis-server");
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
