import { describe, expect, test } from "vitest";
import { boardSettings, type OperatorSettings } from "../../../kafka/src/settings.ts";
import { describeConfig, readConfig } from "./config.ts";
import { kafkaSettings } from "./kafka.ts";

/** Settings of the driver and its board for an environment. */
async function settingsOf(environment: Record<string, string> = {}) {
  const settings = kafkaSettings(readConfig(environment), async () => 3);
  const { transactionalId: id } = settings;
  const driver: OperatorSettings = { ...settings, transactionalId: typeof id === "string" ? id : await id() };
  return { driver, board: boardSettings(driver, undefined) };
}

/** The parts of `changed` that are not as in `before`, by their path. */
function differences(before: unknown, changed: unknown, path = ""): Record<string, unknown> {
  const isObject = (value: unknown): value is Record<string, unknown> =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isObject(before) || !isObject(changed)) return before === changed ? {} : { [path]: changed };
  const names = new Set([...Object.keys(before), ...Object.keys(changed)]);
  const parts = [...names].map((name) =>
    differences(before[name], changed[name], path ? `${path}/${name}` : name),
  );
  return Object.assign({}, ...parts);
}

const LOGIN = { KAFKA_SASL_USERNAME: "ann", KAFKA_SASL_PASSWORD: "a password" };
const sasl = (mechanism: string) => ({ mechanism, username: "ann", password: "a password" });

const CASES: [environment: Record<string, string>, changes: Record<string, unknown>][] = [
  [{ KAFKA_BOOTSTRAP_SERVERS: "a:1,b:2" }, { "kafka/bootstrap": "a:1,b:2" }],
  [{ KAFKA_CLIENT_ID: "node-7" }, { "kafka/clientId": "node-7", transactionalId: "node-7-3" }],
  [{ KAFKA_TX_ID: "flock-orch-1" }, { transactionalId: "flock-orch-1" }],
  [{ ...LOGIN, KAFKA_SASL_MECHANISM: "plain" }, { "kafka/sasl": sasl("plain") }],
  [{ ...LOGIN, KAFKA_SASL_MECHANISM: "scram-sha-256" }, { "kafka/sasl": sasl("scram-sha-256") }],
  [{ ...LOGIN, KAFKA_SASL_MECHANISM: "scram-sha-512" }, { "kafka/sasl": sasl("scram-sha-512") }],
  [{ KAFKA_SSL_ENABLE: "true" }, { "kafka/ssl": {} }],
  [{ KAFKA_SSL_ENABLE: "true", KAFKA_SSL_CA: "/ca.pem" }, { "kafka/ssl": { ca: "/ca.pem" } }],
  [{ KAFKA_SSL_ENABLE: "true", KAFKA_SSL_CERT: "/cert.pem" }, { "kafka/ssl": { cert: "/cert.pem" } }],
  [
    { KAFKA_SSL_ENABLE: "true", KAFKA_SSL_KEY: "/key.pem", KAFKA_SSL_KEY_PASSPHRASE: "open" },
    { "kafka/ssl": { key: "/key.pem", passphrase: "open" } },
  ],
  [
    { KAFKA_TX_ENABLE: "false" },
    { transactions: false, "producerProperties/acks": -1, "producerProperties/enable.idempotence": true },
  ],
  [
    { KAFKA_TX_ENABLE: "false", KAFKA_IDEMPOTENCE: "false" },
    { transactions: false, "producerProperties/acks": -1, "producerProperties/enable.idempotence": false },
  ],
  [
    { KAFKA_TX_ENABLE: "false", KAFKA_IDEMPOTENCE: "false", KAFKA_ACKS: "1" },
    { transactions: false, "producerProperties/acks": 1, "producerProperties/enable.idempotence": false },
  ],
  [{ KAFKA_TOPIC_PREFIX: "team." }, { prefix: "team." }],
  [{ KAFKA_TOPIC_ARTIFACTS: "a" }, { "topics/artifacts": "a" }],
  [{ KAFKA_TOPIC_BY_ID: "b" }, { "topics/byId": "b" }],
  [{ KAFKA_TOPIC_PROCESSED: "c" }, { "topics/processed": "c" }],
  [{ KAFKA_TOPIC_DLQ_PREFIX: "d." }, { "topics/deadLettersPrefix": "d." }],
  [{ KAFKA_PARTITIONS: "16" }, { partitions: 16 }],
  [{ KAFKA_REPLICATION: "3" }, { replication: 3 }],
  [{ KAFKA_LINGER_MS: "20" }, { "producerProperties/linger.ms": 20 }],
  [{ KAFKA_BATCH_BYTES: "65536" }, { "producerProperties/batch.size": 65_536 }],
  [{ KAFKA_READ_COMMITTED: "false" }, { readCommitted: false }],
  [{ FLOCK_INDEX_WINDOW: "500" }, { indexWindow: 500 }],
  [{ KHALA_BOARD_KEEP_HOURS: "48" }, { "retention/artifacts": 48 * 3_600_000 }],
  [{ KHALA_DRAIN_MS: "1500" }, { drainMs: 1_500 }],
];

describe("a Kafka setting changes only its own value", () => {
  test.each(CASES)("%j", async (environment, changes) => {
    expect(differences((await settingsOf()).board, (await settingsOf(environment)).board)).toEqual(changes);
  });

  test("every setting has a case here", () => {
    const tried = new Set(CASES.flatMap(([environment]) => Object.keys(environment)));
    const all = describeConfig(readConfig({})).map(({ name }) => name);
    expect(all.filter((name) => /^(KAFKA|FLOCK)_/.test(name) && !tried.has(name))).toEqual([]);
  });
});

test("without settings, the board has the documented defaults", async () => {
  expect((await settingsOf()).board).toEqual({
    kafka: { bootstrap: "", clientId: "khala" },
    prefix: "flock.",
    topics: {},
    partitions: 8,
    transactions: true,
    transactionalId: "khala-3",
    readCommitted: true,
    indexWindow: 10_000,
    retention: { artifacts: 168 * 3_600_000 },
    drainMs: 5_000,
    producerProperties: { "linger.ms": 5, "batch.size": 1_048_576 },
  });
});
