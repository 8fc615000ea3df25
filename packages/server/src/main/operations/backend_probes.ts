import { once } from "node:events";
import { connect } from "node:net";
import { KhalaError } from "@khala/contracts";
import { pino } from "pino";
import { loadRedisClient, probeServer, type RedisServer } from "../../conversations/log/redis/redis_log.ts";
import { parseRedisUrl } from "../../conversations/log/redis/url.ts";
import { systemClock } from "../../kit/clock.ts";
import { uuidv7 } from "../../kit/ids.ts";
import { openQuotas } from "../../kit/quota.ts";
import { openTelemetry } from "../../kit/telemetry.ts";
import type { Config } from "../config.ts";
import { kafkaAccess, loadKafkaDriver } from "../kafka.ts";

const TIMEOUT_MS = 3_000;

/** Asks the Redis of a URL what it is; throws when it does not answer, or is too old. */
export async function probeRedis(url: string): Promise<RedisServer> {
  const { Redis } = await loadRedisClient();
  const telemetry = await openTelemetry();
  const log = pino({ level: "silent" });
  const quotas = openQuotas(telemetry.meter);
  const newId = uuidv7(systemClock);
  const context = { clock: systemClock, random: Math.random, newId, log, telemetry, quotas };
  try {
    const target = parseRedisUrl(url);
    return await probeServer(context, { target, timeoutMs: TIMEOUT_MS, client: Redis });
  } finally {
    await telemetry.shutdown();
  }
}

/** The bootstrap servers of Kafka that can be reached; throws when none can, none accepts the login, or the driver is not installed. */
export async function probeKafka(config: Config): Promise<readonly string[]> {
  const { askKafka } = await loadKafkaDriver();
  const access = kafkaAccess(config);
  const addresses = access.bootstrap.split(",").map((address) => address.trim());
  const reached = await Promise.all(addresses.map(isReached));
  const found = addresses.filter((_, i) => reached[i]);
  if (found.length === 0)
    throw new KhalaError("unavailable", `No Kafka broker answers at ${addresses.join(", ")}.`);
  await askKafka(access);
  return found;
}

async function isReached(address: string): Promise<boolean> {
  const [, host, port] = /^\[?([^\]]+?)\]?:(\d+)$/.exec(address) ?? [];
  if (!host) return false;
  const socket = connect({ host, port: Number(port) });
  try {
    await once(socket, "connect", { signal: AbortSignal.timeout(TIMEOUT_MS) });
    return true;
  } catch {
    // The caller lists the brokers that could be reached; the reason does not matter.
    return false;
  } finally {
    socket.destroy();
  }
}
