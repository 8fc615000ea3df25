import { join } from "node:path";
import type { Config } from "./config.ts";
import type { AuthSettings } from "./gateway/auth/setup.ts";
import type { GatewaySettings } from "./gateway/gateway.ts";
import type { SyncSettings } from "./sync/plane.ts";
import type { ConvexSinkOptions } from "./sync/second_sink_convex.ts";

/** What authentication is told. */
export function authSettings(config: Config, dev: boolean): AuthSettings {
  return {
    secrets: config.KHALA_AUTH_SECRETS,
    jwksUrl: config.KHALA_AUTH_JWKS_URL,
    jwksFile: config.KHALA_AUTH_JWKS_FILE,
    issuer: config.KHALA_AUTH_ISSUER,
    audience: config.KHALA_AUTH_AUDIENCE,
    clockSkewS: config.KHALA_AUTH_CLOCK_SKEW_S,
    minTtlS: config.KHALA_AUTH_MIN_TTL_S,
    maxTtlS: config.KHALA_AUTH_MAX_TTL_S,
    devKeyFile: dev ? join(config.KHALA_DATA_DIR, "dev.key") : undefined,
  };
}

/** What the sync plane is told. */
export function syncSettings(config: Config): SyncSettings {
  return {
    inline: config.KHALA_PAYLOAD_MODE === "inline",
    batch: {
      rows: config.KHALA_REPLAY_MAX_UPDATES,
      bytes: config.KHALA_REPLAY_MAX_BATCH_BYTES,
      payloadBytes: config.KHALA_REPLAY_MAX_UPDATE_BYTES,
    },
    tailBytes: config.KHALA_TAIL_BYTES,
    pollMs: config.KHALA_POLL_MS,
    retryMs: config.KHALA_PROJECTION_RETRY_MS,
    retentionMs: config.KHALA_RETENTION_HOURS * 3_600_000,
    retentionEveryMs: config.KHALA_RETENTION_INTERVAL_S * 1_000,
    stallMs: config.KHALA_STALL_S * 1_000,
  };
}

/** What the convex second sink is told. */
export function convexSettings(config: Config): ConvexSinkOptions {
  return {
    url: config.CONVEX_URL ?? "",
    mutation: config.CONVEX_MUTATION,
    query: config.CONVEX_QUERY,
    secret: config.CONVEX_SECRET,
  };
}

/** What the gateway is told. */
export function gatewaySettings(config: Config, dev: boolean): GatewaySettings {
  return {
    host: config.KHALA_HOST,
    port: config.KHALA_PORT,
    dev,
    issuerKey: config.KHALA_AUTH_ISSUER_KEY,
    maxTtlS: config.KHALA_AUTH_MAX_TTL_S,
    origins: config.KHALA_ORIGINS,
    maxBodyBytes: config.KHALA_MAX_BODY_BYTES,
    maxTopics: config.KHALA_MAX_TOPICS,
    drainMs: config.KHALA_DRAIN_MS,
    limits: {
      sockets: config.KHALA_MAX_SOCKETS,
      socketsPerSubject: config.KHALA_MAX_SOCKETS_PER_SUBJECT,
      frameBytes: config.KHALA_MAX_FRAME_BYTES,
      bufferBytes: config.KHALA_SOCKET_BUFFER_BYTES,
      channels: config.KHALA_MAX_CHANNELS,
      slowMs: config.KHALA_SLOW_CONSUMER_MS,
      idleMs: config.KHALA_IDLE_TIMEOUT_MS,
      heartbeatMs: config.KHALA_HEARTBEAT_MS,
    },
  };
}
