import { useKhala } from "@khala/client/react";
import { createContext, type ReactNode, use, useEffect, useState } from "react";
import { useFrozen } from "../parts/pause.tsx";
import type { FailureLike } from "../parts/states.tsx";
import { type Overview, readOverview } from "./overview_read.ts";

/** The overview, and the last ones before it, oldest first. */
export interface OverviewHistory {
  readonly latest: Overview | undefined;
  readonly samples: readonly Overview[];
  readonly error: FailureLike | undefined;
  /** Whether it comes at the moment; otherwise it is as old as it says. */
  readonly isLive: boolean;
}

/** Five minutes, at one a second. */
const KEPT = 300;
const NOTHING: OverviewHistory = { latest: undefined, samples: [], error: undefined, isLive: false };
const HISTORY = createContext<OverviewHistory>(NOTHING);

/** Listens to the overview for as long as the page is open, so that its lines do not begin anew with each room. */
export function OverviewProvider({ children }: { readonly children: ReactNode }) {
  const { ops } = useKhala();
  const [history, setHistory] = useState(NOTHING);
  useEffect(() => {
    const listen = () => {
      const { overview, error, live: isLive } = ops.live.state();
      setHistory((old) => {
        const latest = overview && readOverview(overview);
        const isNew = latest !== undefined && latest.at !== old.latest?.at;
        if (!isNew) return old.error === error && old.isLive === isLive ? old : { ...old, error, isLive };
        return { latest, samples: [...old.samples.slice(1 - KEPT), latest], error, isLive };
      });
    };
    setHistory(NOTHING);
    const stop = ops.live.subscribe(listen);
    listen();
    return stop;
  }, [ops]);
  return <HISTORY value={history}>{children}</HISTORY>;
}

/** How the server is, live, unless the view is paused. */
export function useOverview(): OverviewHistory {
  return useFrozen(use(HISTORY));
}
