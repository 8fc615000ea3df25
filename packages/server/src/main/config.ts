import { z } from "zod";
import { readSecrets } from "../gateway/auth/keys/secrets.ts";

const MAX_COUNT = 1_000_000_000;

/** Every number has a maximum: sums and timers of larger ones would overflow. */
const whole = (min: number, max: number) => z.coerce.number().int().min(min).max(max);
const count = (fallback: number, min = 1, max = MAX_COUNT) => whole(min, max).default(fallback);
const bytes = (fallback: number, min: number) => count(fallback, min, 1 << 30);
/** At most a day. */
const milliseconds = (fallback: number, min: number, max = 86_400_000) => count(fallback, min, max);
/** At most a year. */
const seconds = (fallback: number, min: number, max = 31_536_000) => count(fallback, min, max);
/** At most ten years. */
const hours = (fallback: number, min: number, max = 87_600) => count(fallback, min, max);
const flag = (fallback: boolean) =>
  z
    .enum(["true", "false", "1", "0", "on", "off"])
    .transform((value) => value === "true" || value === "1" || value === "on")
    .default(fallback);
const list = z
  .string()
  .transform((text) =>
    text
      .split(",")
      .map((part) => part.trim())
      .filter(Boolean),
  )
  .default([]);

const topic = z
  .string()
  .regex(/^[A-Za-z0-9._-]{1,180}$/, "may only contain letters, digits, dots, underscores and dashes")
  .optional();

/** Every setting: its name in the environment, its check, its default, and what it is for. */
const SETTINGS = z.object({
  KHALA_HOST: z.string().default("127.0.0.1").describe("Address to listen on"),
  KHALA_PORT: count(4000, 0, 65_535).describe("Port to listen on; 0 picks a free one"),
  KHALA_DATA_DIR: z
    .string()
    .default(".khala")
    .describe("Folder of the embedded PostgreSQL and of development keys"),
  KHALA_LOG_LEVEL: z
    .enum(["trace", "debug", "info", "warn", "error", "silent"])
    .default("info")
    .describe("Least severe log line"),
  KHALA_DRAIN_MS: milliseconds(30_000, 0).describe("How long shutdown waits for running answers"),
  KHALA_MAX_BODY_BYTES: bytes(1 << 20, 1_024).describe("Largest HTTP body"),
  DATABASE_URL: z
    .string()
    .regex(/^postgres(ql)?:\/\//, "must start with postgres://")
    .optional()
    .describe("PostgreSQL 14 or later; unset: embedded"),
  KHALA_DATABASE_POOL: count(10, 3, 500).describe("Connections to PostgreSQL"),
  REDIS_URL: z
    .string()
    .regex(
      /^(redis|rediss|redis-cluster|rediss-cluster):\/\//,
      "must start with redis://, rediss:// or redis-cluster://",
    )
    .optional()
    .describe("Moves conversations to Redis Streams, 6.2 or later, Valkey, or a cluster"),
  KAFKA_BOOTSTRAP_SERVERS: z
    .string()
    .regex(/^\s*(\[[^\]]+\]|[^\s,:[\]]+):\d{1,5}(\s*,\s*(\[[^\]]+\]|[^\s,:[\]]+):\d{1,5})*\s*$/, {
      error: "must be host:port, or several of them separated by commas",
    })
    .optional()
    .describe("Moves the blackboard to Kafka 3.5 or later"),
  KAFKA_CLIENT_ID: z
    .string()
    .default("khala")
    .describe("Client id in the logs of the brokers; readers append an id"),
  KAFKA_SASL_MECHANISM: z
    .string()
    .toLowerCase()
    .pipe(z.enum(["plain", "scram-sha-256", "scram-sha-512"]))
    .optional()
    .describe("How to log in to Kafka: plain, scram-sha-256 or scram-sha-512"),
  KAFKA_SASL_USERNAME: z.string().optional().describe("Name to log in to Kafka with"),
  KAFKA_SASL_PASSWORD: z.string().optional().describe("Password to log in to Kafka with"),
  KAFKA_SSL_ENABLE: flag(false).describe("Uses TLS for Kafka"),
  KAFKA_SSL_CA: z.string().optional().describe("Trusted certificates, a file or PEM; unset: the system's"),
  KAFKA_SSL_CERT: z.string().optional().describe("Client certificate, a file or PEM"),
  KAFKA_SSL_KEY: z.string().optional().describe("Private key of the certificate, a file or PEM"),
  KAFKA_SSL_KEY_PASSPHRASE: z.string().optional().describe("Passphrase of that key"),
  KAFKA_TX_ENABLE: flag(true).describe("Exactly-once publication; off: at least once, with dedup"),
  KAFKA_TX_ID: z
    .string()
    .optional()
    .describe("Transactional id, unique among live processes; unset: a free slot is taken in PostgreSQL"),
  KAFKA_TOPIC_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9._-]{0,60}$/, "may only contain letters, digits, dots, underscores and dashes")
    .default("flock.")
    .describe("Prefix of the names of topics and groups"),
  KAFKA_TOPIC_ARTIFACTS: topic.describe(
    "Full name of the topic of artifacts; unset: prefix and default name",
  ),
  KAFKA_TOPIC_BY_ID: topic.describe("Full name of the topic of the index by id"),
  KAFKA_TOPIC_PROCESSED: topic.describe("Full name of the topic of processed tasks"),
  KAFKA_TOPIC_DLQ_PREFIX: topic.describe("Full prefix of the topics of dead letters"),
  KAFKA_PARTITIONS: count(8, 1, 1_000).describe("Partitions of new topics; not changed later"),
  KAFKA_REPLICATION: count(-1, -1, 15).describe("Replicas of new topics; -1: the default of the broker"),
  KAFKA_LINGER_MS: milliseconds(5, 0, 1_000).describe("How long the producer batches records"),
  KAFKA_BATCH_BYTES: bytes(1 << 20, 1_024).describe("Largest batch of the producer"),
  KAFKA_ACKS: z
    .enum(["all", "1"])
    .default("all")
    .describe("Acknowledgements of a write; 1 only without transactions"),
  KAFKA_IDEMPOTENCE: flag(true).describe("Idempotent producer: retries are not written twice"),
  KAFKA_READ_COMMITTED: flag(true).describe("Consumers skip aborted transactions"),
  FLOCK_INDEX_WINDOW: count(10_000, 1).describe("Artifacts kept for the bounded lists"),

  KHALA_AUTH_SECRETS: z
    .string()
    .superRefine((text, { addIssue }) => {
      try {
        readSecrets(text);
      } catch (error) {
        addIssue({ code: "custom", message: (error as Error).message });
      }
    })
    .optional()
    .describe("HS256 secrets as kid:base64, separated by commas; the first signs"),
  KHALA_AUTH_JWKS_URL: z.url().optional().describe("Public keys for RS256 and ES256, by URL"),
  KHALA_AUTH_JWKS_FILE: z.string().optional().describe("Public keys for RS256 and ES256, by file"),
  KHALA_AUTH_ISSUER: z.string().optional().describe("Required iss of tokens"),
  KHALA_AUTH_AUDIENCE: z.string().optional().describe("Required aud of tokens"),
  KHALA_AUTH_ISSUER_KEY: z
    .string()
    .min(16)
    .optional()
    .describe("Bearer key that may call POST /api/sync/token"),
  KHALA_AUTH_CLOCK_SKEW_S: seconds(30, 0, 300).describe("Tolerated clock difference"),
  KHALA_AUTH_MIN_TTL_S: seconds(60, 1).describe("Shortest lifetime of a minted token"),
  KHALA_AUTH_MAX_TTL_S: seconds(900, 1).describe("Longest lifetime of an accepted token"),
  KHALA_ORIGINS: list
    .refine((origins) => origins.every((origin) => /^(\*|https?:\/\/[^\s/]+\/?)$/i.test(origin)), {
      error:
        "must be origins with a scheme and no path: https://app.example.com, https://*.example.com, http://localhost:*, or *",
    })
    .describe(
      "Origins of pages that may call routes and open sockets, separated by commas; * for all; own host always",
    ),

  KHALA_MAX_CONNECTIONS_PER_ADDRESS: count(2_000, 0).describe(
    "Connections of one address, without authenticated sockets; 0: any number",
  ),
  KHALA_MAX_SOCKETS: count(20_000).describe("Sockets on this server"),
  KHALA_MAX_SOCKETS_PER_ORG: whole(1, MAX_COUNT)
    .optional()
    .describe("Sockets of one org on this server; unset: nine tenths of KHALA_MAX_SOCKETS"),
  KHALA_MAX_SUBSCRIPTIONS_PER_ORG: count(200_000).describe(
    "Subscriptions to topics of one org on this server",
  ),
  KHALA_MAX_STORED_BYTES_PER_ORG: count(100 * 2 ** 30, 0).describe(
    "Bytes that one org stores, on all servers together; 0: any number",
  ),
  KHALA_MAX_SOCKETS_PER_SUBJECT: count(2_000).describe("Sockets of one subject on this server"),
  KHALA_MAX_CHANNELS: count(100).describe("Channels on one socket"),
  KHALA_MAX_TOPICS: count(50).describe("Topics that one socket follows"),
  KHALA_MAX_FRAME_BYTES: bytes(256 << 10, 1_024).describe("Largest frame that a client may send"),
  KHALA_SOCKET_BUFFER_BYTES: bytes(1 << 20, 16_384).describe("Send buffer of one socket, in bytes"),
  KHALA_SLOW_CONSUMER_MS: milliseconds(10_000, 100).describe(
    "How long a socket with a full buffer may stall before it is closed",
  ),
  KHALA_IDLE_TIMEOUT_MS: milliseconds(90_000, 1_000).describe(
    "How long a socket may be silent; browsers throttle background tabs to a minute",
  ),
  KHALA_HEARTBEAT_MS: milliseconds(15_000, 100).describe("How often a socket receives its positions"),

  KHALA_PAYLOAD_MODE: z
    .enum(["inline", "pointer"])
    .default("inline")
    .describe("Whether the journal stores payloads or points to the read model"),
  KHALA_REPLAY_MAX_UPDATES: count(200).describe("Updates in one batch"),
  KHALA_REPLAY_MAX_UPDATE_BYTES: bytes(256 << 10, 1_024).describe(
    "Payload of one update; a larger one must be fetched",
  ),
  KHALA_REPLAY_MAX_BATCH_BYTES: bytes(2 << 20, 1_024).describe("Payloads in one batch"),
  KHALA_TAIL_BYTES: bytes(16 << 20, 0).describe("Newest updates kept in memory, per topic"),
  KHALA_POLL_MS: milliseconds(250, 10).describe(
    "How often the database is polled, for updates whose wake-up was lost",
  ),
  KHALA_WAKEUPS: flag(true).describe("Wake-ups by LISTEN/NOTIFY; without them only polling finds updates"),
  KHALA_PROJECTION_RETRY_MS: milliseconds(5_000, 10).describe(
    "Retry interval of streams that a projection has set aside",
  ),
  KHALA_RETENTION_HOURS: z.coerce
    .number()
    .min(24)
    .max(168)
    .default(72)
    .describe("How long the journal is kept, 24 to 168"),
  KHALA_RETENTION_INTERVAL_S: seconds(60, 1).describe("How often the journal is trimmed"),
  KHALA_STALL_S: seconds(120, 1).describe("A backlog without progress for this long is reported as a stall"),
  KHALA_MIRROR: z
    .enum(["off", "noop", "convex"])
    .default("off")
    .describe("Mirror: a second store that receives every update"),
  CONVEX_URL: z.url().optional().describe("Deployment that the Convex mirror calls"),
  CONVEX_MUTATION: z.string().default("khala:applyUpdates").describe("Mutation that the Convex mirror calls"),
  CONVEX_QUERY: z.string().default("khala:versions").describe("Query that `khala parity` calls"),
  CONVEX_SECRET: z
    .string()
    .optional()
    .describe(
      "Sent as `secret` to the mutation and the query, which must check it: everyone can call a public function",
    ),

  KHALA_CHAT_READER_GRACE_MS: milliseconds(30_000, 0).describe(
    "How long a conversation is still read after its last socket has closed",
  ),
  KHALA_CHAT_RECENT_BYTES: bytes(256 << 10, 0).describe(
    "Newest events kept in memory, per conversation that is read",
  ),
  KHALA_CHAT_POLL_MS: milliseconds(1_000, 50).describe(
    "How often conversations are polled, for events whose wake-up was lost; thirty times as long on Redis",
  ),
  KHALA_CHAT_LEASE_MS: milliseconds(5_000, 300).describe(
    "Lease of a run; another server takes over when it expires",
  ),
  KHALA_CHAT_RUN_TIMEOUT_S: seconds(600, 1).describe("Longest run"),
  KHALA_CHAT_RUN_MAX_BYTES: bytes(4 << 20, 1_024).describe("Largest answer of one run"),
  KHALA_CHAT_QUEUE: count(20, 0).describe("Queued messages per conversation"),
  KHALA_CHAT_ENGINES: count(1_000).describe(
    "Engines kept in memory, and the limit of live runs on this server",
  ),
  KHALA_CHAT_ORG_RUNS: whole(1, MAX_COUNT)
    .optional()
    .describe("Live runs of one org on this server; unset: nine tenths of KHALA_CHAT_ENGINES"),
  KHALA_CHAT_ORG_MESSAGES_PER_S: count(1_000, 1).describe("Messages per second of one org on this server"),
  KHALA_CHAT_ENGINE_IDLE_S: seconds(600, 1).describe("How long an idle engine is kept"),
  KHALA_FILE_MAX_BYTES: bytes(25 << 20, 1_024).describe("Largest file of a conversation"),
  KHALA_FILES_S3_URL: z
    .string()
    .regex(/^https?:\/\//, "must start with https:// or http://")
    .optional()
    .describe("Bucket that stores files instead of PostgreSQL, S3-compatible; needs @khala/s3"),
  KHALA_FILES_S3_REGION: z.string().default("us-east-1").describe("Region of the bucket"),
  KHALA_FILES_S3_ACCESS_KEY: z.string().optional().describe("Access key id for the bucket"),
  KHALA_FILES_S3_SECRET_KEY: z.string().optional().describe("Secret access key for the bucket"),
  KHALA_CHAT_DELTA_MS: milliseconds(30, 0, 1_000).describe(
    "Window in which text deltas are merged into one event",
  ),
  KHALA_CHAT_DELTA_CHARS: count(128, 1).describe("Characters that end that window early"),
  KHALA_AUDIT_KEEP_DAYS: count(400, 1, 36_500).describe("How long the audit log is kept"),
  KHALA_CHAT_KEEP_HOURS: hours(168, 1).describe("Events of a conversation's log that are kept, by age"),
  KHALA_CHAT_KEEP_EVENTS: count(10_000, 1).describe(
    "Events of a conversation's log that are kept, by number",
  ),
  KHALA_CHAT_KEEP_BYTES: bytes(8 << 20, 1_024).describe(
    "Events of a conversation's log that are kept, by size",
  ),
  KHALA_CHAT_TTL_HOURS: hours(720, 1).describe("How long an idle log is kept; its messages stay"),
  KHALA_CHAT_KEEP_DAYS: whole(1, 36_500)
    .optional()
    .describe("Conversations that are kept, by days since their last change; unset: for ever"),
  KHALA_CHAT_JANITOR_S: seconds(60, 1).describe("How often conversations are trimmed and removed"),

  KHALA_BOARD_AGENTS: flag(true).describe("Whether this server runs the app's agents"),
  KHALA_WORKER_PORT: whole(0, 65_535)
    .optional()
    .describe(
      "Port on which `khala worker` answers /metrics, /healthz and /readyz; 0 picks a free one; unset: it does not listen",
    ),
  KHALA_BOARD_CONCURRENCY: count(64, 1).describe("Tasks at a time on this server, of all agents together"),
  KHALA_BOARD_LEASE_MS: milliseconds(30_000, 300).describe(
    "Lease of a task; another server takes it when it expires",
  ),
  KHALA_BOARD_POLL_MS: milliseconds(1_000, 10).describe(
    "How often the board is polled, for work whose wake-up was lost",
  ),
  KHALA_BOARD_KEEP_HOURS: hours(168, 24).describe(
    "How long artifacts are kept, and on PostgreSQL finished tasks",
  ),
  KHALA_BOARD_LAG_SLOW: count(10_000, 1).describe(
    "Open tasks per org and agent from which publishing slows down",
  ),
  KHALA_BOARD_LAG_REFUSE: count(100_000, 1).describe(
    "Open tasks per org and agent from which publishing is refused; for all orgs together: ten times as many",
  ),
  KHALA_BOARD_PUBLISH_RATE: count(100_000, 1).describe(
    "Artifacts that one org may publish per second on each server",
  ),
  KHALA_BOARD_DEPTH: count(32, 1).describe("Longest chain of artifacts that agents derive from each other"),
  KHALA_OPS_INTERVAL_MS: milliseconds(1_000, 100).describe(
    "How often watchers receive an overview of the server; nothing is measured without watchers",
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: z.url().optional().describe("Where traces are sent, OTLP over HTTP"),
  OTEL_SERVICE_NAME: z
    .string()
    .optional()
    .describe("The `service.name` of traces and metrics; `khala` unless set"),
  OTEL_RESOURCE_ATTRIBUTES: z
    .string()
    .optional()
    .describe("More attributes of traces and metrics: `key=value` pairs, with commas between them"),
  KHALA_TRACE_URL: z
    .string()
    .regex(/^https?:\/\//, "must start with http:// or https://")
    .optional()
    .describe("URL of a trace viewer, with {trace_id} for the id"),
});

/** The names of all settings. */
export const SETTING_NAMES: readonly string[] = Object.keys(SETTINGS.shape);

/** The settings of a server, checked and frozen. */
export type Config = Readonly<z.infer<typeof SETTINGS>>;

const SECRET = new Set([
  "KHALA_AUTH_SECRETS",
  "KHALA_AUTH_ISSUER_KEY",
  "DATABASE_URL",
  "REDIS_URL",
  "CONVEX_SECRET",
  "KAFKA_SASL_PASSWORD",
  "KHALA_FILES_S3_ACCESS_KEY",
  "KHALA_FILES_S3_SECRET_KEY",
  // It may be the key itself, and not the file that has it.
  "KAFKA_SSL_KEY",
  "KAFKA_SSL_KEY_PASSPHRASE",
]);

/** Settings that have no effect without another one. */
const LOGIN = ["KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"] as const;
const TLS = ["KAFKA_SSL_CA", "KAFKA_SSL_CERT", "KAFKA_SSL_KEY", "KAFKA_SSL_KEY_PASSPHRASE"] as const;

/** Reads the environment once. A bad value is an error that names the setting. */
export function readConfig(environment: Readonly<Record<string, string | undefined>> = process.env): Config {
  // As a number, spaces would be 0, which means "any number" for some.
  const isSet = (name: string) => Boolean(environment[name]?.trim());
  const known = Object.fromEntries(
    SETTING_NAMES.map((name) => [name, isSet(name) ? environment[name] : undefined]),
  );
  const parsed = SETTINGS.safeParse(known);
  if (!parsed.success) {
    const problems = parsed.error.issues.map((issue) => {
      const name = issue.path.join(".");
      const isNumber = issue.code === "invalid_type" && issue.expected === "number";
      return `${name}: ${isNumber ? "not a number" : issue.message}`;
    });
    throw new Error(`Invalid settings:\n  ${problems.join("\n  ")}\nSee \`khala config --help\`.`);
  }
  const config = parsed.data;
  if (config.KHALA_MIRROR === "convex" && !config.CONVEX_URL)
    throw new Error("KHALA_MIRROR=convex needs CONVEX_URL.");
  if (config.KHALA_FILES_S3_URL && !(config.KHALA_FILES_S3_ACCESS_KEY && config.KHALA_FILES_S3_SECRET_KEY))
    throw new Error("KHALA_FILES_S3_URL needs KHALA_FILES_S3_ACCESS_KEY and KHALA_FILES_S3_SECRET_KEY.");
  if (config.KAFKA_SASL_MECHANISM && !(config.KAFKA_SASL_USERNAME && config.KAFKA_SASL_PASSWORD))
    throw new Error("KAFKA_SASL_MECHANISM needs KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD.");
  for (const [names, needed, isThere] of [
    [LOGIN, "KAFKA_SASL_MECHANISM", config.KAFKA_SASL_MECHANISM !== undefined],
    [TLS, "KAFKA_SSL_ENABLE=true", config.KAFKA_SSL_ENABLE],
  ] as const) {
    const name = names.find((each) => config[each] !== undefined);
    if (name && !isThere) throw new Error(`${name} has no effect without ${needed}. Set both, or neither.`);
  }
  if (config.KAFKA_ACKS !== "all" && (config.KAFKA_TX_ENABLE || config.KAFKA_IDEMPOTENCE))
    throw new Error("KAFKA_ACKS=1 needs KAFKA_TX_ENABLE=false and KAFKA_IDEMPOTENCE=false.");
  if (config.KHALA_BOARD_LAG_SLOW >= config.KHALA_BOARD_LAG_REFUSE)
    throw new Error("KHALA_BOARD_LAG_SLOW must be below KHALA_BOARD_LAG_REFUSE.");
  if (config.KHALA_AUTH_MIN_TTL_S > config.KHALA_AUTH_MAX_TTL_S)
    throw new Error("KHALA_AUTH_MIN_TTL_S must not be above KHALA_AUTH_MAX_TTL_S.");
  return Object.freeze(config);
}

/** Every setting with its value and meaning; secrets are masked. */
export function describeConfig(
  config: Config,
): { name: string; value: unknown; meaning: string; secret: boolean }[] {
  return Object.entries(SETTINGS.shape).map(([name, schema]) => {
    const value = config[name as keyof Config];
    const secret = SECRET.has(name);
    return {
      name,
      value: secret && value !== undefined ? "(set)" : withoutCredentials(value),
      meaning: schema.description ?? "",
      secret,
    };
  });
}

/** An address may carry a name, a password or a key. */
function withoutCredentials(value: unknown): unknown {
  if (typeof value !== "string") return value;
  return value
    .replace(/^([a-z][a-z0-9+.-]*:\/\/)[^/?#]*@/i, "$1***@")
    .replace(/^([a-z][a-z0-9+.-]*:\/\/[^?#]*)\?.*$/i, "$1?***");
}
