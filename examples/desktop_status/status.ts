import { createSyncClient, type Storage } from "@khala/client/sync";

const RUNS = "runtime.run_summaries";
const WORKERS = "runtime.codex_worker_summaries";

interface Topics {
  readonly [RUNS]: { readonly title?: string; readonly status?: string };
  readonly [WORKERS]: { readonly name?: string; readonly status?: string };
}

export interface StatusOptions {
  readonly url: string;
  readonly token: () => Promise<string>;
  readonly storage: Storage;
}

/** What a status reader needs: the lines to show, and when they changed. */
export interface Status {
  lines(): readonly string[];
  /** Follows until the returned function is called. */
  subscribe(listener: () => void): () => void;
  close(): Promise<void>;
}

/** Follows runs and workers. With what is stored it has lines before it has a connection. */
export function openStatus(options: StatusOptions): Status {
  const { sync, connection, close } = createSyncClient<{ documents?: Topics }>(options);
  return {
    lines() {
      const [workers, runs] = [sync.list(WORKERS), sync.list(RUNS)];
      const known = runs.phase !== "loading" && workers.phase !== "loading";
      return [
        known ? lineState(connection.status().state) : "Loading…",
        ...workers.items.map(({ key, data: { name = key, status = "" } }) => `worker ${name}: ${status}`),
        ...runs.items.map(({ key, data: { title = key, status = "" } }) => `run ${title}: ${status}`),
      ];
    },
    subscribe(listener) {
      const stops = [
        sync.subscribe(RUNS, listener),
        sync.subscribe(WORKERS, listener),
        connection.subscribe(listener),
      ];
      return () => {
        for (const stop of stops) stop();
      };
    },
    close,
  };
}

function lineState(state: string): string {
  if (state === "live") return "Live";
  if (state === "replaying" || state === "stale") return "Catching up";
  return "Not connected: the last known state";
}
