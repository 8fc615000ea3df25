import { KhalaError } from "@khala/contracts";
import type { Context } from "../../../kit/context.ts";
import { RedisConnection, type RedisSettings } from "./connection.ts";
import { redisError } from "./errors.ts";

/** What a log needs to know of the server that it speaks to. */
export interface RedisServer {
  readonly version: string;
  readonly cluster: boolean;
  /** Channels belong to slots, which needs a cluster of Redis 7 or later. */
  readonly sharded: boolean;
}

/** Asks the first server that answers what it is, and refuses one that is too old. */
export async function askServer(context: Context, settings: RedisSettings): Promise<RedisServer> {
  let problem: Error | undefined;
  for (const address of settings.target.addresses) {
    const connection = new RedisConnection(context, settings, address);
    try {
      const info = parseInfo(await connection.call((redis) => redis.info()));
      return describe(context, connection.name, info, settings.target.cluster);
    } catch (error) {
      if (error instanceof KhalaError && error.code === "invalid_request") throw error;
      problem = redisError(error as Error, connection.name);
    } finally {
      connection.close();
    }
  }
  throw problem!;
}

function describe(
  context: Context,
  name: string,
  info: ReadonlyMap<string, string>,
  wanted: boolean,
): RedisServer {
  const version = info.get("redis_version") ?? "0";
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major < 6 || (major === 6 && minor < 2))
    throw new KhalaError(
      "invalid_request",
      `Redis (${name}) is version ${version}. Use 6.2 or later, or Valkey.`,
    );
  const cluster = info.get("cluster_enabled") === "1";
  if (wanted && !cluster)
    throw new KhalaError("invalid_request", `Redis (${name}) is no cluster. Use redis://${name} for it.`);
  const policy = info.get("maxmemory_policy") ?? "noeviction";
  if (policy !== "noeviction" && info.get("maxmemory") !== "0")
    context.log.warn(
      { redis: name, policy },
      "Redis removes keys when it is full, and with them conversations: set maxmemory-policy to noeviction",
    );
  return { version, cluster, sharded: cluster && major >= 7 };
}

function parseInfo(text: string): ReadonlyMap<string, string> {
  const lines = text.split(/\r?\n/).filter((line) => line.includes(":"));
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]));
}
