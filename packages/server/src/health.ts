import type { BlackboardPlane } from "./blackboard/plane.ts";
import type { Config } from "./config.ts";
import type { Database } from "./database/database.ts";
import type { Auth } from "./gateway/auth/setup.ts";
import type { DependencyState, Health } from "./gateway/routes/health.ts";
import type { Context } from "./kit/context.ts";
import type { Log } from "./log/log.ts";
import type { SyncPlane } from "./sync/plane.ts";

export interface HealthParts {
  readonly context: Context;
  readonly config: Config;
  readonly database: Database;
  readonly sync: SyncPlane;
  readonly chatLog: Log;
  readonly blackboard: Pick<BlackboardPlane, "lag">;
  readonly auth: Auth;
}

/** Asks each part of the server how it is. */
export function openHealth({
  context,
  config,
  database,
  sync,
  chatLog,
  blackboard,
  auth,
}: HealthParts): Health {
  async function databaseState(): Promise<DependencyState> {
    const started = performance.now();
    try {
      await database.query({ text: "SELECT 1" });
      return {
        state: "ok",
        engine: config.DATABASE_URL ? "postgres" : "embedded postgres",
        latency_ms: Math.round(performance.now() - started),
      };
    } catch (error) {
      return { state: "unavailable", message: (error as Error).message };
    }
  }

  async function conversationState(): Promise<DependencyState> {
    // In Postgres they are as well as the database is.
    if (!config.REDIS_URL) return { state: "ok", engine: "postgres" };
    const started = performance.now();
    try {
      await chatLog.heads(["chat:health"]);
      return { state: "ok", engine: "redis", latency_ms: Math.round(performance.now() - started) };
    } catch (error) {
      const message = `${(error as Error).message} Conversations wait for it; docs/runbooks/REDIS_FAILOVER.md helps.`;
      return { state: "degraded", engine: "redis", message };
    }
  }

  async function blackboardState(): Promise<DependencyState> {
    // In Postgres it is as well as the database is.
    if (!config.KAFKA_BOOTSTRAP_SERVERS) return { state: "ok", engine: "postgres" };
    const started = performance.now();
    try {
      await blackboard.lag();
      return { state: "ok", engine: "kafka", latency_ms: Math.round(performance.now() - started) };
    } catch (error) {
      const message = `${(error as Error).message} Publishing and agents wait for it.`;
      return { state: "degraded", engine: "kafka", message };
    }
  }

  function projectionState(): DependencyState {
    const broken = sync.projections().filter((projection) => projection.broken);
    if (broken.length === 0) return { state: "ok" };
    const message = broken.map((projection) => projection.broken!.message).join(" ");
    return {
      state: "degraded",
      message: `${message} Mend the model and restart; nothing is lost meanwhile.`,
      stopped: broken.map(({ topic }) => topic),
    };
  }

  function deliveryState(): DependencyState {
    const { at } = sync.hub.lastPoll();
    const stuck = sync.hub.open().filter((feed) => feed.lag().stuckMs > config.KHALA_STALL_S * 1_000);
    if (stuck.length > 0)
      return {
        state: "degraded",
        message: "There is a backlog that does not move.",
        stuck: stuck.map((feed) => feed.model.topic),
      };
    const quietMs = context.clock.now() - at;
    if (quietMs > Math.max(10_000, config.KHALA_POLL_MS * 4))
      return { state: "degraded", message: `The database was last polled ${quietMs} ms ago.` };
    return { state: "ok" };
  }

  function authState(): DependencyState {
    const problems = auth.keyring.problems();
    return problems.length > 0 ? { state: "degraded", message: problems.join(" ") } : { state: "ok" };
  }

  return async () => ({
    database: await databaseState(),
    projections: projectionState(),
    delivery: deliveryState(),
    conversations: await conversationState(),
    blackboard: await blackboardState(),
    auth: authState(),
  });
}
