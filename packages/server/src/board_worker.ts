import type { App } from "./app.ts";
import type { BlackboardPlane } from "./blackboard/plane.ts";
import { openBlackboard } from "./blackboard_setup.ts";
import { openHints } from "./database/hints.ts";
import {
  BOARD_HINT,
  type Closers,
  EVENTS_HINT,
  type KhalaOptions,
  openContext,
  openStore,
} from "./foundation.ts";
import { openAuthority } from "./runtime/authority.ts";

/** The agents of an app at work in a process without a door. */
export interface BoardWorker {
  readonly blackboard: BlackboardPlane;
  /** Finishes what is under way, and gives the rest back. */
  stop(): Promise<void>;
}

/** Starts the agents of an app, on the database and the engine of its servers. */
export async function createBoardWorker(app: App, options: KhalaOptions): Promise<BoardWorker> {
  const { config } = options;
  const closers: Closers = [];
  const stop = async () => {
    for (const close of closers.splice(0).reverse()) await close();
  };
  try {
    const context = await openContext(options);
    closers.push(() => context.telemetry.shutdown());
    const database = await openStore(config, context, closers);
    // Servers make documents of what is appended here.
    const authority = openAuthority(database, context, () => hints.send(EVENTS_HINT));
    const hints = openHints(database, context, {
      enabled: config.KHALA_HINTS,
      onHint(name) {
        if (name.startsWith(BOARD_HINT)) blackboard.hint(name);
      },
      onListening: () => blackboard.recheck(),
    });
    closers.push(() => hints.stop());
    closers.push(() => authority.drain());
    const working = { ...config, KHALA_BOARD_AGENTS: true };
    const blackboard = await openBlackboard(working, app, { database, context, authority, hints });
    closers.push(() => blackboard.stop());
    hints.start();
    return { blackboard, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
