import { describe, expect, test } from "vitest";
import { describeConfig, readConfig } from "./config.ts";

const SECRET = `kid:${Buffer.alloc(32, 1).toString("base64")}`;

describe("without any setting", () => {
  test("the documented defaults hold", () => {
    expect(readConfig({})).toMatchObject({
      KHALA_HOST: "127.0.0.1",
      KHALA_PORT: 4000,
      KHALA_DATA_DIR: ".khala",
      KHALA_REPLAY_MAX_UPDATES: 200,
      KHALA_REPLAY_MAX_UPDATE_BYTES: 256 * 1024,
      KHALA_REPLAY_MAX_BATCH_BYTES: 2 * 1024 * 1024,
      KHALA_MAX_BODY_BYTES: 1024 * 1024,
      KHALA_MAX_CHANNELS: 100,
      KHALA_AUTH_CLOCK_SKEW_S: 30,
      KHALA_WAKEUPS: true,
      KHALA_PAYLOAD_MODE: "inline",
      KHALA_ORIGINS: [],
    });
  });

  test("workers do not listen", () => {
    expect(readConfig({}).KHALA_WORKER_PORT).toBeUndefined();
    expect(readConfig({ KHALA_WORKER_PORT: "" }).KHALA_WORKER_PORT).toBeUndefined();
  });

  test("treats a setting of spaces as unset, not as 0", () => {
    expect(readConfig({ KHALA_DRAIN_MS: " ", KHALA_MAX_STORED_BYTES_PER_ORG: " " })).toEqual(readConfig({}));
  });

  test("treats an empty setting as unset", () => {
    expect(readConfig({ KHALA_PORT: "", DATABASE_URL: "", KHALA_ORIGINS: "" })).toEqual(readConfig({}));
  });

  test("ignores variables that are not settings", () => {
    expect(readConfig({ PATH: "/bin", KHALA_UNKNOWN: "1" })).toEqual(readConfig({}));
  });
});

describe("settings are read", () => {
  test("as numbers, flags and lists", () => {
    const config = readConfig({
      KHALA_PORT: "0",
      KHALA_WAKEUPS: "off",
      KHALA_ORIGINS: " https://a.example, ,https://*.b.example,http://localhost:*,* ",
    });
    expect(config.KHALA_PORT).toBe(0);
    expect(readConfig({ KHALA_WORKER_PORT: "0" }).KHALA_WORKER_PORT).toBe(0);
    expect(config.KHALA_WAKEUPS).toBe(false);
    expect(config.KHALA_ORIGINS).toEqual([
      "https://a.example",
      "https://*.b.example",
      "http://localhost:*",
      "*",
    ]);
    for (const [text, value] of Object.entries({ true: true, "1": true, on: true, false: false, "0": false }))
      expect(readConfig({ KHALA_WAKEUPS: text }).KHALA_WAKEUPS).toBe(value);
  });

  test("once, and frozen", () => {
    const config = readConfig({});
    expect(Object.isFrozen(config)).toBe(true);
  });
});

describe("refuses a wrong setting by name", () => {
  test.each([
    { KHALA_PORT: "65536" },
    { KHALA_PORT: "-1" },
    { KHALA_PORT: "many" },
    { KHALA_WORKER_PORT: "65536" },
    { KHALA_WORKER_PORT: "some" },
    { KHALA_LOG_LEVEL: "loud" },
    { KHALA_WAKEUPS: "perhaps" },
    { DATABASE_URL: "mysql://somewhere" },
    { KHALA_ORIGINS: "https://a.example,app.example.com" },
    { KHALA_RETENTION_HOURS: "23" },
    { KHALA_RETENTION_HOURS: "169" },
    { KHALA_AUTH_ISSUER_KEY: "short" },
    { KHALA_AUTH_JWKS_URL: "not a url" },
    { KHALA_AUTH_SECRETS: "short" },
    { KHALA_AUTH_SECRETS: "k1:c2VjcmV0" },
    { KHALA_AUTH_SECRETS: `${SECRET},${SECRET}` },
    { KAFKA_BOOTSTRAP_SERVERS: "bad" },
    { KAFKA_BOOTSTRAP_SERVERS: "a:9092,b" },
    { KAFKA_BOOTSTRAP_SERVERS: "a:9092," },
    { KAFKA_BOOTSTRAP_SERVERS: "kafka://a:9092" },
    { KHALA_PAYLOAD_MODE: "both" },
    { KHALA_MAX_TOPICS: "0" },
    { KHALA_REPLAY_MAX_UPDATES: "1.5" },
    { KAFKA_SASL_MECHANISM: "gssapi" },
    { KAFKA_SSL_ENABLE: "perhaps" },
    { KAFKA_TX_ENABLE: "perhaps" },
    { KAFKA_TOPIC_PREFIX: "a/b/c" },
    { KAFKA_TOPIC_ARTIFACTS: "no spaces" },
    { KAFKA_TOPIC_BY_ID: "no:colons" },
    { KAFKA_TOPIC_PROCESSED: "x".repeat(181) },
    { KAFKA_TOPIC_DLQ_PREFIX: "no/slashes" },
    { KAFKA_PARTITIONS: "0" },
    { KAFKA_PARTITIONS: "1001" },
    { KAFKA_REPLICATION: "-2" },
    { KAFKA_REPLICATION: "16" },
    { KAFKA_LINGER_MS: "1001" },
    { KAFKA_BATCH_BYTES: "1023" },
    { KAFKA_ACKS: "two" },
    { KAFKA_IDEMPOTENCE: "perhaps" },
    { KAFKA_READ_COMMITTED: "perhaps" },
    { FLOCK_INDEX_WINDOW: "0" },
  ])("%o", (environment: Record<string, string>) => {
    const [name, value] = Object.entries(environment)[0]!;
    expect(() => readConfig(environment)).toThrow(name);
    // A value may be a secret that landed in the wrong place.
    if (value.length > 2) expect(() => readConfig(environment)).not.toThrow(value);
  });

  test("every number that is too large", () => {
    const numbers = describeConfig(readConfig({})).filter(({ value }) => typeof value === "number");
    const unset = ["KHALA_MAX_SOCKETS_PER_ORG", "KHALA_CHAT_ORG_RUNS", "KHALA_WORKER_PORT"];
    for (const name of [...numbers.map((each) => each.name), ...unset])
      expect(() => readConfig({ [name]: String(Number.MAX_SAFE_INTEGER) }), name).toThrow(`${name}: Too big`);
    expect(readConfig({ KHALA_CHAT_RUN_TIMEOUT_S: "2592000" }).KHALA_CHAT_RUN_TIMEOUT_S).toBe(2_592_000);
  });

  test("all of them in one error", () => {
    const read = () => readConfig({ KHALA_PORT: "x", KHALA_WAKEUPS: "x" });
    expect(read).toThrow("KHALA_PORT");
    expect(read).toThrow("KHALA_WAKEUPS");
  });

  test("even when it is wrong only in combination with another", () => {
    expect(() => readConfig({ KHALA_PORT: "four" })).toThrow("KHALA_PORT: not a number");
    expect(() => readConfig({ KHALA_MIRROR: "convex" })).toThrow("CONVEX_URL");
    expect(() => readConfig({ KHALA_AUTH_MIN_TTL_S: "901" })).toThrow("KHALA_AUTH_MIN_TTL_S");
    const lag = { KHALA_BOARD_LAG_SLOW: "5", KHALA_BOARD_LAG_REFUSE: "5" };
    expect(() => readConfig(lag)).toThrow("KHALA_BOARD_LAG_SLOW must be below");
    expect(readConfig({ ...lag, KHALA_BOARD_LAG_REFUSE: "6" })).toMatchObject({ KHALA_BOARD_LAG_SLOW: 5 });
  });

  test("an unknown login to Kafka; Kafka's own spelling is accepted", () => {
    const login = { KAFKA_SASL_USERNAME: "ann", KAFKA_SASL_PASSWORD: "a password" };
    const read = (KAFKA_SASL_MECHANISM: string) => readConfig({ ...login, KAFKA_SASL_MECHANISM });
    expect(read("SCRAM-SHA-512")).toMatchObject({ KAFKA_SASL_MECHANISM: "scram-sha-512" });
    expect(() => read("GSSAPI")).toThrow("KAFKA_SASL_MECHANISM");
  });

  test("a login to Kafka without a name or a password", () => {
    const whole = {
      KAFKA_SASL_MECHANISM: "plain",
      KAFKA_SASL_USERNAME: "ann",
      KAFKA_SASL_PASSWORD: "a password",
    };
    expect(readConfig(whole)).toMatchObject(whole);
    for (const name of ["KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"])
      expect(() => readConfig({ ...whole, [name]: "" })).toThrow("KAFKA_SASL_MECHANISM needs");
  });

  test.each([
    ["KAFKA_SASL_USERNAME", "KAFKA_SASL_MECHANISM"],
    ["KAFKA_SASL_PASSWORD", "KAFKA_SASL_MECHANISM"],
    ["KAFKA_SSL_CA", "KAFKA_SSL_ENABLE=true"],
    ["KAFKA_SSL_CERT", "KAFKA_SSL_ENABLE=true"],
    ["KAFKA_SSL_KEY", "KAFKA_SSL_ENABLE=true"],
    ["KAFKA_SSL_KEY_PASSPHRASE", "KAFKA_SSL_ENABLE=true"],
  ])("%s, which has no effect without %s", (name, needed) => {
    const read = () => readConfig({ [name]: "a value" });
    expect(read).toThrow(`${name} has no effect without ${needed}`);
    expect(read).not.toThrow("a value");
  });

  test("acks of only one broker, where all must acknowledge", () => {
    const loose = { KAFKA_ACKS: "1", KAFKA_TX_ENABLE: "false", KAFKA_IDEMPOTENCE: "false" };
    expect(readConfig(loose)).toMatchObject({ KAFKA_ACKS: "1" });
    for (const name of ["KAFKA_TX_ENABLE", "KAFKA_IDEMPOTENCE"])
      expect(() => readConfig({ ...loose, [name]: "true" })).toThrow("KAFKA_ACKS=1 needs");
  });
});

describe("the description", () => {
  const secrets = {
    KHALA_AUTH_SECRETS: SECRET,
    KHALA_AUTH_ISSUER_KEY: "a-key-of-the-issuer",
    DATABASE_URL: "postgres://user:hunter2@db/khala",
    REDIS_URL: "redis://:hunter2@cache",
    CONVEX_SECRET: "a-secret-of-convex",
    KAFKA_SASL_PASSWORD: "a-password-of-kafka",
    KAFKA_SSL_KEY: "-----BEGIN PRIVATE KEY-----\nMIGHAgEA\n-----END PRIVATE KEY-----",
    KAFKA_SSL_KEY_PASSPHRASE: "a-phrase-of-the-key",
  };
  const around = { KAFKA_SASL_MECHANISM: "plain", KAFKA_SASL_USERNAME: "ann", KAFKA_SSL_ENABLE: "true" };

  test("explains every setting, and never shows a secret", () => {
    const described = describeConfig(readConfig({ ...secrets, ...around, KHALA_PORT: "4711" }));
    for (const { name, meaning } of described) expect(meaning, name).not.toBe("");
    expect(described.find(({ name }) => name === "KHALA_PORT")?.value).toBe(4711);
    const text = JSON.stringify(described);
    for (const secret of Object.values(secrets)) expect(text).not.toContain(secret);
    expect(text).not.toContain("hunter2");
    for (const name of Object.keys(secrets))
      expect(described.find((each) => each.name === name)?.value).toBe("(set)");
  });

  test("shows a URL without its login and keys", () => {
    const described = describeConfig(
      readConfig({
        CONVEX_URL: "https://ann:hunter2@convex.example/app",
        OTEL_EXPORTER_OTLP_ENDPOINT: "https://traces.example/v1?key=hunter2",
      }),
    );
    const settingValue = (name: string) => described.find((each) => each.name === name)?.value;
    expect(settingValue("CONVEX_URL")).toBe("https://***@convex.example/app");
    expect(settingValue("OTEL_EXPORTER_OTLP_ENDPOINT")).toBe("https://traces.example/v1?***");
  });
});
