import { createClient } from "@khala/client";
import { type AsyncStorageLike, asyncStorage } from "@khala/client/storage";

export interface RunListOptions {
  readonly url: string;
  readonly token: () => Promise<string>;
  /** `@react-native-async-storage/async-storage` on a phone. */
  readonly store: AsyncStorageLike;
}

/** A row, as the screen shows it. */
export interface Row {
  readonly key: string;
  readonly title: string;
  readonly status: string;
}

/** What the screen shows. The same object until something changed. */
export interface RunListState {
  readonly rows: readonly Row[];
  /** What to say above the list; empty when all is well. */
  readonly notice: string;
}

/** The store of a list screen: `useSyncExternalStore(list.subscribe, list.state)` renders it. */
export interface RunList {
  state(): RunListState;
  subscribe(listener: () => void): () => void;
  close(): Promise<void>;
}

const TOPIC = "runtime.run_summaries";

interface Run {
  readonly title?: string;
  readonly status?: string;
}

/** Opens the list: at once with what the phone has stored, then with what the server says. */
export function openRunList({ url, token, store }: RunListOptions): RunList {
  const khala = createClient<{ documents?: { [TOPIC]: Run } }>({ url, token, storage: asyncStorage(store) });
  let seen = khala.sync.list(TOPIC);
  let state: RunListState = { rows: [], notice: "Loading…" };
  return {
    state() {
      const list = khala.sync.list(TOPIC);
      if (list === seen) return state;
      seen = list;
      const rows = list.items.map(({ key, data: { title = key, status = "" } }) => ({ key, title, status }));
      state = { rows, notice: noticeOf(list.phase, list.error?.message) };
      return state;
    },
    subscribe: (listener) => khala.sync.subscribe(TOPIC, listener),
    close: () => khala.close(),
  };
}

function noticeOf(phase: string, why: string | undefined): string {
  if (phase === "loading") return "Loading…";
  if (phase === "offline") return "Offline. This is what was there last.";
  if (phase === "forbidden") return why ?? "You may not see this list.";
  return "";
}
