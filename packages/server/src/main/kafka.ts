import { KhalaError } from "@khala/contracts";
import type { Board } from "../blackboard/board.ts";
import type { BoardOptions } from "../blackboard/board_options.ts";
import type { WakeableBoard } from "../blackboard/options.ts";
import type { Database } from "../database/database.ts";
import { keepSlot } from "../database/lease.ts";
import type { Context } from "../kit/context.ts";
import type { Config } from "./config.ts";
import { closeMs } from "./settings.ts";

/** The part of the Kafka driver that is used here. It is a separate package, because its client is native. */
interface KafkaDriver {
  openKafkaBoard(context: Context, options: BoardOptions & ReturnType<typeof kafkaSettings>): Promise<Board>;
  askKafka(access: ReturnType<typeof kafkaAccess>): Promise<readonly string[]>;
}

const SLOT_LEASE_MS = 15_000;
const DRIVER = "@khala/kafka";

/** The board on Kafka. */
export async function openKafka(
  config: Config,
  database: Database,
  context: Context,
  options: BoardOptions,
): Promise<WakeableBoard> {
  const { openKafkaBoard } = await loadKafkaDriver();
  // Two live processes with one transactional id would fence each other off.
  const slot = config.KAFKA_TX_ID
    ? undefined
    : await keepSlot(database, context, "kafka transactions", SLOT_LEASE_MS);
  try {
    const board = await openKafkaBoard(context, {
      ...options,
      ...kafkaSettings(config, () => slot!.number()),
    });
    const stop = async () => {
      await board.stop();
      await slot?.stop();
    };
    // Kafka pushes news itself.
    return { ...board, stop, onWakeup() {}, recheck() {} };
  } catch (error) {
    await slot?.stop();
    throw error;
  }
}

/** Addresses of the brokers, and credentials. */
export function kafkaAccess(config: Config) {
  const { KAFKA_SASL_MECHANISM: mechanism } = config;
  return {
    bootstrap: config.KAFKA_BOOTSTRAP_SERVERS ?? "",
    clientId: config.KAFKA_CLIENT_ID,
    ...(mechanism && {
      sasl: {
        mechanism,
        username: config.KAFKA_SASL_USERNAME ?? "",
        password: config.KAFKA_SASL_PASSWORD ?? "",
      },
    }),
    ...(config.KAFKA_SSL_ENABLE && {
      ssl: {
        ...(config.KAFKA_SSL_CA && { ca: config.KAFKA_SSL_CA }),
        ...(config.KAFKA_SSL_CERT && { cert: config.KAFKA_SSL_CERT }),
        ...(config.KAFKA_SSL_KEY && { key: config.KAFKA_SSL_KEY }),
        ...(config.KAFKA_SSL_KEY_PASSPHRASE && { passphrase: config.KAFKA_SSL_KEY_PASSPHRASE }),
      },
    }),
  };
}

/** Settings of the driver. `slot` numbers this process where KAFKA_TX_ID is not set. */
export function kafkaSettings(config: Config, slot: () => Promise<number>) {
  return {
    ...kafkaAccess(config),
    transactions: config.KAFKA_TX_ENABLE,
    transactionalId: config.KAFKA_TX_ID ?? (async () => `${config.KAFKA_CLIENT_ID}-${await slot()}`),
    prefix: config.KAFKA_TOPIC_PREFIX,
    topics: {
      ...(config.KAFKA_TOPIC_ARTIFACTS && { artifacts: config.KAFKA_TOPIC_ARTIFACTS }),
      ...(config.KAFKA_TOPIC_BY_ID && { byId: config.KAFKA_TOPIC_BY_ID }),
      ...(config.KAFKA_TOPIC_PROCESSED && { processed: config.KAFKA_TOPIC_PROCESSED }),
      ...(config.KAFKA_TOPIC_DLQ_PREFIX && { deadLettersPrefix: config.KAFKA_TOPIC_DLQ_PREFIX }),
    },
    partitions: config.KAFKA_PARTITIONS,
    replication: config.KAFKA_REPLICATION,
    lingerMs: config.KAFKA_LINGER_MS,
    batchBytes: config.KAFKA_BATCH_BYTES,
    acks: config.KAFKA_ACKS,
    idempotence: config.KAFKA_IDEMPOTENCE,
    readCommitted: config.KAFKA_READ_COMMITTED,
    window: config.FLOCK_INDEX_WINDOW,
    retentionMs: config.KHALA_BOARD_KEEP_HOURS * 3_600_000,
    drainMs: closeMs(config),
  };
}

/** The package, or the folder beside this one in a checkout, which the root install leaves out. */
export async function loadKafkaDriver(): Promise<KafkaDriver> {
  let missing: unknown;
  for (const name of [DRIVER, new URL("../../../kafka/src/index.ts", import.meta.url).href]) {
    try {
      return (await import(name)) as KafkaDriver;
    } catch (error) {
      if ((error as { code?: string }).code !== "ERR_MODULE_NOT_FOUND") throw error;
      missing = error;
    }
  }
  const message = `KAFKA_BOOTSTRAP_SERVERS is set, but the driver ${DRIVER} is not installed. Run \`npm install ${DRIVER}\`.`;
  throw new KhalaError("unavailable", message, {}, { cause: missing });
}
