import { KhalaError } from "@khala/contracts";
import type { CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import type { ListSnapshot, Snapshot, Sync } from "../sync/plane_port.ts";

/** The topic of correlations. */
const TOPIC = "blackboard.correlations";

const UNDER_WAY: ReadonlySet<string> = new Set(["running", "waiting", "paused"]);

/** One correlation, live. */
export interface CorrelationWatch {
  /** The same object until it changes; without `data` until it is known. */
  state(): Snapshot<CorrelationStateJson>;
  subscribe(listener: () => void): () => void;
  /** Resolves when it is `done`, `failed` or `cancelled`. */
  settled(options?: { readonly signal?: AbortSignal }): Promise<CorrelationStateJson>;
}

/** Watches a correlation in its topic. Its key encodes the id, so the document is asked for it. */
export function watchCorrelation(
  sync: Pick<Sync, "list" | "subscribe">,
  correlationId: string,
): CorrelationWatch {
  let lastList: ListSnapshot | undefined;
  let snapshot: Snapshot<CorrelationStateJson> = { phase: "loading", stale: false };

  function state(): Snapshot<CorrelationStateJson> {
    const list = sync.list(TOPIC);
    if (list === lastList) return snapshot;
    lastList = list;
    const item = list.items.find(
      ({ data }) => (data as CorrelationStateJson).correlation_id === correlationId,
    );
    const same =
      item?.version === snapshot.version && list.phase === snapshot.phase && list.error === snapshot.error;
    if (!same)
      snapshot = {
        ...(item && { data: item.data as CorrelationStateJson, version: item.version }),
        phase: list.phase,
        ...(list.error && { error: list.error }),
        stale: false,
      };
    return snapshot;
  }

  function subscribe(listener: () => void): () => void {
    let notified = state();
    return sync.subscribe(TOPIC, () => {
      const now = state();
      if (now === notified) return;
      notified = now;
      listener();
    });
  }

  return {
    state,
    subscribe,
    settled({ signal } = {}) {
      return new Promise((resolve, reject) => {
        const stop = subscribe(check);
        const end = () => {
          stop();
          signal?.removeEventListener("abort", abort);
        };
        const abort = () => {
          end();
          reject(signal?.reason ?? new KhalaError("unavailable", "Waiting for the correlation was aborted."));
        };
        function check() {
          const { data, phase, error } = state();
          if (data && !UNDER_WAY.has(data.status ?? "")) {
            end();
            resolve(data);
          } else if (phase === "forbidden") {
            end();
            reject(error ?? new KhalaError("forbidden_topic", `The token does not allow "${TOPIC}".`));
          }
        }
        signal?.addEventListener("abort", abort, { once: true });
        if (signal?.aborted) abort();
        else check();
      });
    },
  };
}
