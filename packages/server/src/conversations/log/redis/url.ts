import { KhalaError } from "@khala/contracts";

/** The address of a Redis server. */
export interface RedisAddress {
  readonly host: string;
  readonly port: number;
}

/** A parsed Redis URL. */
export interface RedisTarget {
  readonly addresses: readonly RedisAddress[];
  readonly username?: string;
  readonly password?: string;
  readonly db: number;
  readonly tls: boolean;
  /** False: the server is asked. */
  readonly cluster: boolean;
}

const SHAPE = /^(rediss?)(-cluster)?:\/\/(?:([^:@/]*)(?::([^@/]*))?@)?([^/?@]+)(?:\/(\d*))?(?:\?(.*))?$/;
const EXAMPLES =
  "redis://host:6379, rediss://user:password@host:6380, or redis-cluster://host:7000,host:7001";

/** Reads `redis://`, `rediss://`, `redis-cluster://` and `rediss-cluster://`; a cluster may name several nodes. */
export function parseRedisUrl(url: string): RedisTarget {
  const match = SHAPE.exec(url);
  // The URL itself may hold a password, so the message does not repeat it.
  if (!match) throw new KhalaError("invalid_request", `The Redis URL is not valid. Examples: ${EXAMPLES}.`);
  const [, scheme, clustered, username, password, hosts, db, query] = match;
  const cluster = clustered !== undefined || new URLSearchParams(query).get("cluster") === "true";
  const addresses = hosts!.split(",").map(parseRedisAddress);
  if (hosts!.split(",").some((host) => /^[^[].*:.*:/.test(host)))
    throw new KhalaError("invalid_request", "Write an IPv6 address in the Redis URL as [address]:port.");
  if (addresses.length > 1 && !cluster)
    throw new KhalaError(
      "invalid_request",
      `Only a redis-cluster:// URL may have several addresses. Examples: ${EXAMPLES}.`,
    );
  if (cluster && Number(db || 0) !== 0)
    throw new KhalaError("invalid_request", "A Redis cluster has only database 0. Remove it from the URL.");
  return {
    addresses,
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
    db: Number(db || 0),
    tls: scheme === "rediss",
    cluster,
  };
}

/** Reads `host:port`, `host`, `[v6]:port`, and `v6:port` as servers write it. */
export function parseRedisAddress(text: string): RedisAddress {
  const match = /^(?:\[([^\]]+)\]|(.*?))(?::(\d+))?$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3] ?? 6379);
  if (!host || port > 65_535)
    throw new KhalaError(
      "invalid_request",
      `"${text}" is not an address of a Redis server. Examples: ${EXAMPLES}.`,
    );
  return { host, port };
}

/** An address as text, to compare and to show. */
export function formatRedisAddress({ host, port }: RedisAddress): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
