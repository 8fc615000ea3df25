import { KhalaError, OPS_CHANNEL } from "@khala/contracts";
import type { FrameJson, OverviewJson } from "@khala/contracts/ops/v1";
import type { Connection } from "../connection/port.ts";
import type { Environment } from "../environment.ts";

/** The last overview. A new object for each change. */
export interface OverviewSnapshot {
  readonly overview?: OverviewJson;
  /** Whether overviews arrive. */
  readonly live: boolean;
  /** Why not, if known. */
  readonly error?: KhalaError;
}

/** The overview, live. */
export interface LiveOverview {
  state(): OverviewSnapshot;
  /** The server computes it only while there is a subscriber. */
  subscribe(listener: () => void): () => void;
}

/** The sources of the overview. */
export interface OverviewSources {
  readonly connection: Connection;
  /** The connection that tabs share: another tab may hold the socket. */
  readonly shared: Pick<Connection, "status" | "subscribe">;
  readonly environment: Pick<Environment, "timer">;
  /** Requests one, for a tab without a socket. */
  readonly ask: () => Promise<OverviewJson>;
}

const ASK_MS = 1_000;

/** Follows the overview while there is a subscriber: on the ops channel, or by polling in a follower tab. */
export function openLiveOverview({ connection, shared, environment, ask }: OverviewSources): LiveOverview {
  const listeners = new Set<() => void>();
  let snapshot: OverviewSnapshot = { live: false };
  let stop: (() => void) | undefined;
  let asking = false;

  function become(next: OverviewSnapshot): void {
    snapshot = next;
    for (const listener of [...listeners]) listener();
  }

  function lost(error: KhalaError | undefined): void {
    // The next subscriber tries again.
    if (error && !error.meaning.retryable) leave();
    become({ ...snapshot, live: false, ...(error && { error }) });
  }

  function join(): () => void {
    const channel = connection.channel(OPS_CHANNEL, {
      params: () => ({}),
      onJoined() {
        const { error: _, ...rest } = snapshot;
        become({ ...rest, live: true });
      },
      onEvent(event, payload) {
        if (event !== "frame") return;
        const { overview } = payload as FrameJson;
        if (overview) become({ overview, live: true });
      },
      onLeft: lost,
    });
    return () => channel.leave();
  }

  function poll(): () => void {
    let over = false;
    let cancel = () => {};
    const again = () => {
      if (!over) cancel = environment.timer(ASK_MS, next);
    };
    function next(): void {
      ask().then(
        (overview) => {
          if (over) return;
          become({ overview, live: true });
          again();
        },
        (error: unknown) => {
          if (over) return;
          lost(error instanceof KhalaError ? error : new KhalaError("internal", String(error)));
          again();
        },
      );
    }
    next();
    return () => {
      over = true;
      cancel();
    };
  }

  function follow(): void {
    asking = shared.status().role === "follower";
    stop = asking ? poll() : join();
  }

  function leave(): void {
    stop?.();
    stop = undefined;
  }

  let unsubscribe = () => {};
  return {
    state: () => snapshot,
    subscribe(listener) {
      const own = () => listener();
      listeners.add(own);
      if (listeners.size === 1)
        unsubscribe = shared.subscribe(() => {
          if (!stop || asking === (shared.status().role === "follower")) return;
          leave();
          follow();
        });
      if (!stop) follow();
      return () => {
        if (!listeners.delete(own) || listeners.size > 0) return;
        unsubscribe();
        leave();
        snapshot = { ...snapshot, live: false };
      };
    },
  };
}
