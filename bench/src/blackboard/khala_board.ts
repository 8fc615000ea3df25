import { pino } from "pino";
import { openKafkaBoard } from "../../../packages/kafka/src/index.ts";
import type { BoardObserver, BoardOptions } from "../../../packages/server/src/blackboard/board_options.ts";
import { agent } from "../../../packages/server/src/blackboard/model/define_agent.ts";
import type { Task } from "../../../packages/server/src/blackboard/model/task.ts";
import {
  type OpenBlackboardPlane,
  openBlackboardPlane,
} from "../../../packages/server/src/blackboard/open_plane.ts";
import type { WakeableBoard } from "../../../packages/server/src/blackboard/options.ts";
import { openPostgresBoard } from "../../../packages/server/src/blackboard/postgres/open_board.ts";
import { type Database, openDatabase } from "../../../packages/server/src/database/database.ts";
import { openWakeups, type Wakeups } from "../../../packages/server/src/database/wakeups.ts";
import { systemClock } from "../../../packages/server/src/kit/clock.ts";
import type { Context } from "../../../packages/server/src/kit/context.ts";
import { uuidv7 } from "../../../packages/server/src/kit/ids.ts";
import { openQuotas } from "../../../packages/server/src/kit/quota.ts";
import { openTelemetry } from "../../../packages/server/src/kit/telemetry.ts";
import { type Config, readConfig } from "../../../packages/server/src/main/config.ts";
import { blackboardSettings } from "../../../packages/server/src/main/settings.ts";
import { type BoardStore, CONCURRENCY, PARTITIONS } from "./bench.ts";
import type { Publishing } from "./queue.ts";

/** The agent that does nothing. */
const NOOP = agent("noop", { consumes: "Finding", concurrency: CONCURRENCY, run() {} });

/** Who publishes in the benchmark. */
export const CALLER = { org: "bench", subject: "publisher", scopes: new Set(["blackboard:write"]) };

/** The blackboard of a server, without its gateway. */
export interface KhalaBoard {
  readonly plane: OpenBlackboardPlane;
  stop(): Promise<void>;
}

/** Opens the blackboard as a server does, with its settings but for those that a rate is measured by. */
export async function openKhalaBoard(
  store: BoardStore,
  { works, onSettled = () => {} }: { works: boolean; onSettled?: (task: Task) => void },
): Promise<KhalaBoard> {
  const config = readConfig({
    DATABASE_URL: store.url,
    KHALA_BOARD_AGENTS: String(works),
    KHALA_BOARD_CONCURRENCY: String(CONCURRENCY),
    // Nobody is slowed because much waits: that it does is what is measured.
    KHALA_BOARD_LAG_SLOW: "10000000",
    KHALA_BOARD_LAG_REFUSE: "20000000",
    ...(store.kafka && {
      KAFKA_BOOTSTRAP_SERVERS: store.kafka.bootstrap,
      KAFKA_TOPIC_PREFIX: store.kafka.prefix,
      KAFKA_TX_ENABLE: String(store.kafka.transactions),
      KAFKA_PARTITIONS: String(PARTITIONS),
    }),
  });
  const telemetry = await openTelemetry();
  const context: Context = {
    clock: systemClock,
    random: Math.random,
    newId: uuidv7(systemClock),
    log: pino({ level: "error" }),
    telemetry,
    quotas: openQuotas(telemetry.meter),
  };
  const database = openDatabase({ url: store.url, poolSize: config.KHALA_DATABASE_POOL, log: context.log });
  const wakeups = openWakeups(database, context, { enabled: true });
  const plane: OpenBlackboardPlane = await openBlackboardPlane(database, context, {
    ...blackboardSettings(config),
    agents: [NOOP],
    schemas: {},
    schedules: [],
    wakeups,
    // Documents are another plane's work.
    report: { async agent() {}, async correlation() {} },
    // Spans go nowhere.
    carrier: { system: store.kafka ? "kafka" : "postgresql", artifacts: "artifacts", tasks: () => "tasks" },
    openBoard: (given) => engine(config, database, context, wakeups, listening(given, onSettled)),
  });
  wakeups.on("", (name) => plane.onWakeup(name));
  wakeups.onListening(() => plane.recheck());
  wakeups.start();
  return {
    plane,
    async stop() {
      await plane.stop();
      await wakeups.stop();
      await database.close();
    },
  };
}

/** As a server opens it, but for the Kafka driver, which it loads as an installed package. */
async function engine(
  config: Config,
  database: Database,
  context: Context,
  wakeups: Wakeups,
  options: BoardOptions,
): Promise<WakeableBoard> {
  const retentionMs = config.KHALA_BOARD_KEEP_HOURS * 3_600_000;
  const window = config.FLOCK_INDEX_WINDOW;
  if (!config.KAFKA_BOOTSTRAP_SERVERS)
    return openPostgresBoard(database, context, {
      ...options,
      wakeups,
      leaseMs: config.KHALA_BOARD_LEASE_MS,
      pollMs: config.KHALA_BOARD_POLL_MS,
      window,
      retentionMs,
    });
  const id = `bench-${context.newId()}`;
  const board = await openKafkaBoard(context, {
    ...options,
    bootstrap: config.KAFKA_BOOTSTRAP_SERVERS,
    clientId: id,
    transactions: config.KAFKA_TX_ENABLE,
    transactionalId: id,
    prefix: config.KAFKA_TOPIC_PREFIX,
    partitions: config.KAFKA_PARTITIONS,
    replication: config.KAFKA_REPLICATION,
    lingerMs: config.KAFKA_LINGER_MS,
    batchBytes: config.KAFKA_BATCH_BYTES,
    acks: config.KAFKA_ACKS,
    idempotence: config.KAFKA_IDEMPOTENCE,
    readCommitted: config.KAFKA_READ_COMMITTED,
    window,
    retentionMs,
  });
  return { ...board, onWakeup() {}, recheck() {} };
}

function listening(options: BoardOptions, onSettled: (task: Task) => void): BoardOptions {
  const { observer } = options;
  const settled: BoardObserver["settled"] = (task, settlement, place) => {
    observer.settled(task, settlement, place);
    if (settlement.kind === "done") return onSettled(task);
    console.error("A task of the benchmark failed:", settlement.failure);
    process.exit(1);
  };
  return { ...options, observer: { ...observer, settled } };
}

/** A publisher of findings. */
export async function khalaPublisher(store: BoardStore): Promise<Publishing> {
  const { plane, stop } = await openKhalaBoard(store, { works: false });
  return {
    async put(payloads) {
      await plane.publish(
        CALLER,
        payloads.map((payload) => ({ type: "Finding", payload })),
      );
    },
    close: stop,
  };
}
