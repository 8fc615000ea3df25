import { KhalaError, OPS_CHANNEL } from "@khala/contracts";
import type { FrameJson, OverviewJson } from "@khala/contracts/ops/v1";
import type { Connection } from "../connection/port.ts";
import type { Environment } from "../environment.ts";

/** How the server is, as it was last heard. A new object whenever something came. */
export interface OverviewSnapshot {
  readonly overview?: OverviewJson;
  /** Whether it comes at the moment. */
  readonly live: boolean;
  /** Why not, as far as that is known. */
  readonly error?: KhalaError;
}

/** The overview, live. */
export interface LiveOverview {
  state(): OverviewSnapshot;
  /** The server computes it only while somebody subscribes. */
  subscribe(listener: () => void): () => void;
}

/** Where the overview comes from. */
export interface OverviewSources {
  readonly connection: Connection;
  /** The connection as the tabs share it: another tab may hold the socket. */
  readonly seen: Pick<Connection, "status" | "subscribe">;
  readonly environment: Pick<Environment, "timer">;
  /** Asks for one, for a tab that has no socket. */
  readonly ask: () => Promise<OverviewJson>;
}

const ASK_MS = 1_000;

/** Follows the overview while somebody subscribes: on the operators' channel, or by asking where another tab holds the socket. */
export function openLiveOverview({ connection, seen, environment, ask }: OverviewSources): LiveOverview {
  const listeners = new Set<() => void>();
  let snapshot: OverviewSnapshot = { live: false };
  let stop: (() => void) | undefined;
  let asking = false;

  function become(next: OverviewSnapshot): void {
    snapshot = next;
    for (const listener of [...listeners]) listener();
  }

  function lost(error: KhalaError | undefined): void {
    // Whoever subscribes next may be allowed what was refused.
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
    asking = seen.status().role === "follower";
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
        unsubscribe = seen.subscribe(() => {
          if (!stop || asking === (seen.status().role === "follower")) return;
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
