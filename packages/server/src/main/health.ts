import type { BlackboardPlane } from "../blackboard/plane.ts";
import type { Log } from "../conversations/log/log.ts";
import type { ConversationPlane } from "../conversations/plane.ts";
import type { Database } from "../database/database.ts";
import type { Auth } from "../gateway/auth/auth.ts";
import type { DependencyState, Health } from "../gateway/http/health.ts";
import type { Context } from "../kit/context.ts";
import { withTimeout } from "../kit/timeout.ts";
import type { SyncPlane } from "../sync/plane.ts";
import type { Config } from "./config.ts";

export interface HealthParts {
  readonly context: Pick<Context, "clock">;
  readonly config: Config;
  readonly database: Pick<Database, "query">;
  readonly sync: Pick<SyncPlane, "projections"> & {
    readonly hub: Pick<SyncPlane["hub"], "lastPoll" | "open">;
  };
  readonly conversations: Pick<ConversationPlane, "draining">;
  readonly chatLog: Pick<Log, "bounds">;
  readonly blackboard: Pick<BlackboardPlane, "lag" | "problems">;
  readonly auth: { readonly keyring: Pick<Auth["keyring"], "problems"> };
}

/** Shorter than the timeout of `/readyz`: brokers that are down must not make the whole server unavailable. */
const BOARD_MS = 2_000;

/** Opens the health check of a server: the state of each dependency. */
export function openHealth({
  context,
  config,
  database,
  sync,
  conversations,
  chatLog,
  blackboard,
  auth,
}: HealthParts): Health {
  const openedAt = context.clock.now();

  async function conversationState(): Promise<DependencyState> {
    // Load balancers send new requests to other servers.
    if (conversations.draining)
      return { state: "unavailable", message: "The server is shutting down and completes its active runs." };
    // In Postgres their state is the database's.
    if (!config.REDIS_URL) return { state: "ok", backend: "postgres" };
    const started = performance.now();
    try {
      await chatLog.bounds(["chat:health"]);
      return { state: "ok", backend: "redis", latency_ms: Math.round(performance.now() - started) };
    } catch (error) {
      const message = `${(error as Error).message} Conversations wait for Redis. See docs/runbooks/REDIS_FAILOVER.md.`;
      return { state: "degraded", backend: "redis", message };
    }
  }

  function projectionState(): DependencyState {
    const failing = sync.projections().filter(({ failed }) => failed > 0);
    if (failing.length === 0) return { state: "ok" };
    const counts = failing.map(({ topic, failed }) => `${topic} (${failed})`).join(", ");
    return {
      state: "degraded",
      // Everybody may ask: it names no org and no stream.
      message: `Streams are set aside: ${counts}. Fix the model and restart; no event is lost. See docs/runbooks/BROKEN_PROJECTION.md.`,
      failed: Object.fromEntries(failing.map(({ topic, failed }) => [topic, failed])),
    };
  }

  function deliveryState(): DependencyState {
    const { at } = sync.hub.lastPoll();
    const stuck = sync.hub.open().filter((feed) => feed.lag().stuckMs > config.KHALA_STALL_S * 1_000);
    if (stuck.length > 0)
      return {
        state: "degraded",
        message: "A backlog makes no progress. See the log of this server, and KHALA_STALL_S.",
        stuck: stuck.map((feed) => feed.model.topic),
      };
    const quietMs = context.clock.now() - Math.max(at, openedAt);
    if (quietMs > Math.max(10_000, config.KHALA_POLL_MS * 4))
      return { state: "degraded", message: `The database was last polled ${quietMs} ms ago.` };
    return { state: "ok" };
  }

  function authState(): DependencyState {
    const problems = auth.keyring.problems();
    return problems.length > 0 ? { state: "degraded", message: problems.join(" ") } : { state: "ok" };
  }

  return async () => {
    // In parallel: a slow one does not delay the others.
    const [ofDatabase, conversations, ofBlackboard] = await Promise.all([
      databaseState(config, database),
      conversationState(),
      // The rest of the server works without it.
      blackboardState(context, config, blackboard, "degraded"),
    ]);
    return {
      database: ofDatabase,
      projections: projectionState(),
      delivery: deliveryState(),
      conversations,
      blackboard: ofBlackboard,
      auth: authState(),
    };
  };
}

/** The dependencies of a worker that is open. */
export interface WorkerDependencies {
  readonly database: Pick<Database, "query">;
  readonly blackboard: Pick<BlackboardPlane, "lag" | "problems">;
}

/** The health of a worker. Until `watch` is called, and after it is undone, the worker is unavailable. */
export interface WorkerHealth {
  readonly check: Health;
  /** Reports on these dependencies from now on; the returned function ends that. */
  watch(dependencies: WorkerDependencies): () => void;
}

/** Opens the health of a worker that is starting. */
export function openWorkerHealth(context: Pick<Context, "clock">, config: Config): WorkerHealth {
  let watched: WorkerDependencies | undefined;
  return {
    watch(dependencies) {
      watched = dependencies;
      return () => {
        watched = undefined;
      };
    },
    async check() {
      if (!watched)
        return {
          blackboard: {
            state: "unavailable",
            message: "The worker is starting or stopping and takes no tasks.",
          },
        };
      const [database, blackboard] = await Promise.all([
        databaseState(config, watched.database),
        blackboardState(context, config, watched.blackboard, "unavailable"),
      ]);
      return { database, blackboard };
    },
  };
}

async function databaseState(config: Config, database: Pick<Database, "query">): Promise<DependencyState> {
  const started = performance.now();
  try {
    const [session] = await database.query<{ readOnly: string }>({
      text: `SELECT current_setting('transaction_read_only') AS "readOnly"`,
    });
    if (session?.readOnly === "on")
      return {
        state: "unavailable",
        message: "The database accepts no writes. `khala doctor` says why.",
      };
    return {
      state: "ok",
      backend: config.DATABASE_URL ? "postgres" : "embedded postgres",
      latency_ms: Math.round(performance.now() - started),
    };
  } catch (error) {
    return { state: "unavailable", message: (error as Error).message };
  }
}

/** `without` is the state of the process while the board does not answer. */
async function blackboardState(
  { clock }: Pick<Context, "clock">,
  config: Config,
  blackboard: Pick<BlackboardPlane, "lag" | "problems">,
  without: "degraded" | "unavailable",
): Promise<DependencyState> {
  const backend = config.KAFKA_BOOTSTRAP_SERVERS ? "kafka" : "postgres";
  const problems = blackboard.problems();
  const message = `${problems.join(", ")}. \`khala set-aside\` lists the items that need a decision. The others are retried, and the log has their errors.`;
  const working: DependencyState =
    problems.length > 0 ? { state: "degraded", backend, message } : { state: "ok", backend };
  // In Postgres the rest of its state is the database's.
  if (backend === "postgres") return working;
  const failed = (reason: string): DependencyState => ({
    state: without,
    backend,
    message: `${reason} Publishing and agents wait until Kafka answers.`,
  });
  const started = performance.now();
  const asked = blackboard.lag().then(
    (): DependencyState => ({
      ...working,
      latency_ms: Math.round(performance.now() - started),
    }),
    (error: Error) => failed(error.message),
  );
  return withTimeout(clock, BOARD_MS, asked, failed(`No answer within ${BOARD_MS} ms.`));
}
