import { join } from "node:path";
import type { BlackboardSettings } from "../blackboard/options.ts";
import type { ConversationSettings } from "../conversations/options.ts";
import type { StoredBytesOptions } from "../database/stored_bytes.ts";
import type { AuthSettings } from "../gateway/auth/auth.ts";
import { LOOPBACK_ORIGINS } from "../gateway/auth/origin.ts";
import type { GatewaySettings } from "../gateway/gateway.ts";
import type { ListenOptions } from "../gateway/http/http.ts";
import type { ConvexMirrorOptions } from "../sync/mirror/mirror_convex.ts";
import type { Model } from "../sync/model.ts";
import type { SyncSettings } from "../sync/plane.ts";
import type { Config } from "./config.ts";

/** Settings of authentication. */
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

/** Settings of the sync plane. */
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

/** The limit of what an org stores, and the tables that count: not those with short-lived rows. */
export function storedBytesOptions(
  config: Config,
  models: readonly Pick<Model, "table">[],
): StoredBytesOptions {
  return {
    limit: config.KHALA_MAX_STORED_BYTES_PER_ORG,
    tables: [
      { plane: "sync", table: "events", bytes: "pg_column_size(t.data)" },
      { plane: "sync", table: "sync_stream_events", bytes: "octet_length(t.payload)" },
      ...models.map(({ table }) => ({ plane: "sync" as const, table, bytes: "octet_length(t.payload)" })),
      {
        plane: "conversations",
        table: "conversations",
        bytes: "l.bytes",
        join: "JOIN runtime.log_streams l ON l.stream = t.log_name",
      },
      { plane: "conversations", table: "messages", bytes: "pg_column_size(t.parts)" },
      { plane: "conversations", table: "files", bytes: "t.size" },
      { plane: "durable_streams", table: "durable_streams", bytes: "t.tail" },
      { plane: "blackboard", table: "board_artifacts", bytes: "octet_length(t.body)" },
      { plane: "blackboard", table: "board_dead_letters", bytes: "octet_length(t.body)" },
    ],
  };
}

/** Settings of the conversation plane. */
export function conversationSettings(config: Config): ConversationSettings {
  return {
    graceMs: config.KHALA_CHAT_READER_GRACE_MS,
    recentBytes: config.KHALA_CHAT_RECENT_BYTES,
    // Redis pushes news itself, and reports when it could not.
    pollMs: config.KHALA_CHAT_POLL_MS * (config.REDIS_URL ? 30 : 1),
    bookmarkMs: 5_000,
    leaseMs: config.KHALA_CHAT_LEASE_MS,
    runTimeoutMs: config.KHALA_CHAT_RUN_TIMEOUT_S * 1_000,
    runMaxBytes: config.KHALA_CHAT_RUN_MAX_BYTES,
    queueLimit: config.KHALA_CHAT_QUEUE,
    engineIdleMs: config.KHALA_CHAT_ENGINE_IDLE_S * 1_000,
    maxEngines: config.KHALA_CHAT_ENGINES,
    // One org alone must not take every place.
    maxRunsPerOrg: config.KHALA_CHAT_ORG_RUNS ?? shareOfOneOrg(config.KHALA_CHAT_ENGINES),
    maxMessagesPerOrg: config.KHALA_CHAT_ORG_MESSAGES_PER_S,
    deltaWindowMs: config.KHALA_CHAT_DELTA_MS,
    deltaChars: config.KHALA_CHAT_DELTA_CHARS,
    retention: {
      ageMs: config.KHALA_CHAT_KEEP_HOURS * 3_600_000,
      entries: config.KHALA_CHAT_KEEP_EVENTS,
      bytes: config.KHALA_CHAT_KEEP_BYTES,
    },
    ttlMs: config.KHALA_CHAT_TTL_HOURS * 3_600_000,
    keepMs: config.KHALA_CHAT_KEEP_DAYS && config.KHALA_CHAT_KEEP_DAYS * 86_400_000,
    janitorEveryMs: config.KHALA_CHAT_JANITOR_S * 1_000,
  };
}

/** Settings of the blackboard. */
export function blackboardSettings(config: Config): BlackboardSettings {
  return {
    works: config.KHALA_BOARD_AGENTS,
    concurrency: config.KHALA_BOARD_CONCURRENCY,
    leaseMs: config.KHALA_BOARD_LEASE_MS,
    pollMs: config.KHALA_BOARD_POLL_MS,
    // Dead letters are kept for 90 days.
    keepMs: Math.max(config.KHALA_BOARD_KEEP_HOURS * 3_600_000, 100 * 24 * 3_600_000),
    maxDepth: config.KHALA_BOARD_DEPTH,
    lag: { slow: config.KHALA_BOARD_LAG_SLOW, refuse: config.KHALA_BOARD_LAG_REFUSE },
    publishRate: config.KHALA_BOARD_PUBLISH_RATE,
  };
}

/** The settings of the Convex mirror. */
export function convexSettings(config: Config): ConvexMirrorOptions {
  return {
    url: config.CONVEX_URL ?? "",
    mutation: config.CONVEX_MUTATION,
    query: config.CONVEX_QUERY,
    secret: config.CONVEX_SECRET,
  };
}

/** The address of a worker's health endpoints; none unless a port is set. */
export function workerListenOptions(config: Config): ListenOptions | undefined {
  const { KHALA_HOST: host, KHALA_WORKER_PORT: port } = config;
  return port === undefined ? undefined : { host, port, setting: "KHALA_WORKER_PORT" };
}

/** Settings of the gateway. */
export function gatewaySettings(config: Config, dev: boolean): GatewaySettings {
  return {
    host: config.KHALA_HOST,
    port: config.KHALA_PORT,
    dev,
    retentionMs: config.KHALA_RETENTION_HOURS * 3_600_000,
    payloadBytes: config.KHALA_REPLAY_MAX_UPDATE_BYTES,
    issuerKey: config.KHALA_AUTH_ISSUER_KEY,
    issuer: config.KHALA_AUTH_ISSUER,
    maxTtlS: config.KHALA_AUTH_MAX_TTL_S,
    origins: dev ? [...config.KHALA_ORIGINS, ...LOOPBACK_ORIGINS] : config.KHALA_ORIGINS,
    maxBodyBytes: config.KHALA_MAX_BODY_BYTES,
    // Of the connections to PostgreSQL, half are always left for other orgs and for writes.
    readsPerOrg: Math.max(1, Math.floor(config.KHALA_DATABASE_POOL / 2)),
    maxTopics: config.KHALA_MAX_TOPICS,
    maxSubscriptionsPerOrg: config.KHALA_MAX_SUBSCRIPTIONS_PER_ORG,
    maxConnectionsPerAddress: config.KHALA_MAX_CONNECTIONS_PER_ADDRESS,
    closeMs: closeMs(config),
    limits: {
      sockets: config.KHALA_MAX_SOCKETS,
      socketsPerSubject: config.KHALA_MAX_SOCKETS_PER_SUBJECT,
      socketsPerOrg: config.KHALA_MAX_SOCKETS_PER_ORG ?? shareOfOneOrg(config.KHALA_MAX_SOCKETS),
      frameBytes: config.KHALA_MAX_FRAME_BYTES,
      bufferBytes: config.KHALA_SOCKET_BUFFER_BYTES,
      channels: config.KHALA_MAX_CHANNELS,
      slowMs: config.KHALA_SLOW_CONSUMER_MS,
      idleMs: config.KHALA_IDLE_TIMEOUT_MS,
      heartbeatMs: config.KHALA_HEARTBEAT_MS,
    },
  };
}

/** The share of a server that one org may use: nearly all of it, so that a single org notices nothing, but never all. */
function shareOfOneOrg(whole: number): number {
  return Math.max(1, Math.floor(whole * 0.9));
}

/** How long sockets, requests and tasks may take to end once the running answers have. */
export function closeMs({ KHALA_DRAIN_MS }: Config): number {
  return Math.min(KHALA_DRAIN_MS, 5_000);
}
