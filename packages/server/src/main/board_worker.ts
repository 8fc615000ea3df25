import type { App } from "../app.ts";
import type { BlackboardPlane } from "../blackboard/plane.ts";
import { openWakeups } from "../database/wakeups.ts";
import { openAuthority } from "../events/authority.ts";
import { openWorkerHealthServer } from "../gateway/http/worker_health_server.ts";
import { openBlackboard } from "./blackboard.ts";
import { openChatLog } from "./conversations.ts";
import { openWorkerHealth } from "./health.ts";
import { workerListenOptions } from "./settings.ts";
import {
  type Closers,
  closeAll,
  EVENTS_WAKEUP,
  type KhalaOptions,
  openContext,
  openServerDatabase,
} from "./startup.ts";

/** The agents of an app at work, in a process without a gateway. */
export interface BoardWorker {
  readonly blackboard: BlackboardPlane;
  /** Where `/metrics`, `/healthz` and `/readyz` are answered; undefined without KHALA_WORKER_PORT. */
  readonly url: string | undefined;
  /** Finishes running tasks, and releases the others. */
  stop(): Promise<void>;
}

/** Starts the agents of an app, on the database and the backend of its servers. */
export async function createBoardWorker(app: App, options: KhalaOptions): Promise<BoardWorker> {
  const { config } = options;
  const closers: Closers = [];
  const stop = () => closeAll(closers);
  try {
    const context = await openContext(options);
    closers.push(() => context.telemetry.shutdown());
    // Opened first and closed last: a port that is in use interrupts no task, and a stop that waits for work can be watched.
    const listening = workerListenOptions(config);
    const health = openWorkerHealth(context, config);
    const healthServer =
      listening && (await openWorkerHealthServer(context, { ...listening, health: health.check }));
    if (healthServer) closers.push(() => healthServer.stop());
    const database = await openServerDatabase(config, context, closers);
    const authority = openAuthority(database, context);
    const wakeups = openWakeups(database, context, { enabled: config.KHALA_WAKEUPS });
    closers.push(() => wakeups.stop());
    closers.push(() => authority.drain());
    // The projectors of the servers turn what is appended here into documents.
    authority.onAppend(() => wakeups.send(EVENTS_WAKEUP));
    const working = { ...config, KHALA_BOARD_AGENTS: true };
    const chatLog = await openChatLog(config, database, context, wakeups);
    closers.push(() => chatLog.stop());
    const parts = { database, context, authority, wakeups, chatLog };
    const blackboard = await openBlackboard(working, app, parts);
    closers.push(() => blackboard.stop());
    closers.push(health.watch({ database, blackboard }));
    wakeups.start();
    return { blackboard, url: healthServer?.url, stop };
  } catch (error) {
    await stop().catch((failure) =>
      options.log?.warn({ err: failure.message }, "a part could not be closed after a failed start"),
    );
    throw error;
  }
}
