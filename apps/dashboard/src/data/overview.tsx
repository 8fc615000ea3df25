import type { KhalaClient } from "@khala/client";
import { useKhala } from "@khala/client/react";
import { createContext, type ReactNode, use, useEffect, useState } from "react";
import type { ErrorInfo } from "./fetch.ts";
import { useFrozen } from "./pause.tsx";
import { complete, completeAll } from "./wire.ts";

const HEALTH = {
  state: "ok",
  /** What is wrong and what to do; empty when nothing is. */
  message: "",
};
const OVERVIEW = {
  at: "",
  uptime_s: 0,
  process: { rss_bytes: 0, cpu_percent: 0, event_loop_p99_ms: 0 },
  sync: { ...HEALTH, updates_per_s: 0, topics: 0, lag: 0, subscribers: 0, resyncs: 0 },
  conversations: { ...HEALTH, events_per_s: 0, readers: 0, sockets: 0, running: 0, resyncs: 0, failed: 0 },
  blackboard: { ...HEALTH, tasks_per_s: 0, lag: 0, waiting: 0, running: 0, retried: 0, dead: 0, agents: 0 },
  gateway: { sockets: 0, messages_per_s: 0, bytes_per_s: 0, slow_closes: 0, errors_per_s: 0, refused: 0 },
};

export type PlaneHealth = Readonly<typeof HEALTH>;
export type Overview = Readonly<Omit<typeof OVERVIEW, "at">> & { readonly at: number };

function readOverview(wire: Awaited<ReturnType<KhalaClient["ops"]["overview"]>>): Overview {
  const overview = complete(OVERVIEW, wire);
  return { ...overview, at: Date.parse(overview.at) || 0 };
}

/** What charts show of a moment. */
export type Sample = Readonly<Omit<typeof SAMPLE, "at">> & { readonly at: number };

function sampleOf({ at, gateway, sync, conversations, blackboard, process }: Overview): Sample {
  const { messages_per_s, bytes_per_s, errors_per_s } = gateway;
  const { updates_per_s } = sync;
  const { events_per_s } = conversations;
  const { tasks_per_s } = blackboard;
  return {
    at,
    messages_per_s,
    bytes_per_s,
    errors_per_s,
    updates_per_s,
    events_per_s,
    tasks_per_s,
    ...process,
  };
}

/** The latest overview, and the load before it, oldest first: the server's last hour, then what this page saw. */
export interface OverviewHistory {
  readonly latest: Overview | undefined;
  readonly samples: readonly Sample[];
  readonly error: ErrorInfo | undefined;
  /** False while the connection is down: the overview is then as old as its time says. */
  readonly isLive: boolean;
}

/** An hour, of which the last minutes are at one a second. */
const MAX_SAMPLES = 1_000;
const SAMPLE = {
  at: "",
  messages_per_s: 0,
  bytes_per_s: 0,
  errors_per_s: 0,
  updates_per_s: 0,
  events_per_s: 0,
  tasks_per_s: 0,
  cpu_percent: 0,
  event_loop_p99_ms: 0,
  rss_bytes: 0,
};
const NO_HISTORY: OverviewHistory = { latest: undefined, samples: [], error: undefined, isLive: false };
const HistoryContext = createContext<OverviewHistory>(NO_HISTORY);

/** Listens to the overview while the app is open, so that charts keep their history from page to page. */
export function OverviewProvider({ children }: { readonly children: ReactNode }) {
  const { ops } = useKhala();
  const [history, setHistory] = useState(NO_HISTORY);
  useEffect(() => {
    const listen = () => {
      const { overview, error, live: isLive } = ops.live.state();
      setHistory((old) => {
        const latest = overview && readOverview(overview);
        const isNew = latest !== undefined && latest.at !== old.latest?.at;
        if (!isNew) return old.error === error && old.isLive === isLive ? old : { ...old, error, isLive };
        return { latest, samples: [...old.samples.slice(1 - MAX_SAMPLES), sampleOf(latest)], error, isLive };
      });
    };
    setHistory(NO_HISTORY);
    let isOld = false;
    ops.overviewHistory().then(
      ({ samples: past }) => {
        if (isOld) return;
        const read = completeAll(SAMPLE, past).map((one) => ({ ...one, at: Date.parse(one.at) || 0 }));
        setHistory((old) => {
          const from = old.samples[0]?.at ?? Number.POSITIVE_INFINITY;
          return { ...old, samples: [...read.filter(({ at }) => at < from), ...old.samples] };
        });
      },
      // The overview says what is wrong; charts then begin now.
      () => {},
    );
    const stop = ops.live.subscribe(listen);
    listen();
    return () => {
      isOld = true;
      stop();
    };
  }, [ops]);
  return <HistoryContext value={history}>{children}</HistoryContext>;
}

/** The overview as it changes, unless the view is paused. */
export function useOverview(): OverviewHistory {
  return useFrozen(use(HistoryContext));
}
