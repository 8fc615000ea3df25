import type { CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import { useMemo, useSyncExternalStore } from "react";
import type { Board } from "../board/board.ts";
import type { CorrelationWatch } from "../board/correlation_watch.ts";
import type { Snapshot } from "../sync/plane_port.ts";
import { useKhala } from "./provider.ts";

/** The board as a component has it. */
export interface BoardHook {
  readonly board: Board;
  /** How the correlation stands; without `data` while nothing was heard of it. */
  readonly correlation: Snapshot<CorrelationStateJson>;
}

const NOT_HEARD: Snapshot<CorrelationStateJson> = { phase: "loading", stale: false };
const NOTHING: Pick<CorrelationWatch, "state" | "subscribe"> = {
  state: () => NOT_HEARD,
  subscribe: () => () => {},
};

/** The blackboard, and one correlation of it, live. */
export function useBoard(correlationId?: string): BoardHook {
  const { board } = useKhala();
  const watch = useMemo(
    () => (correlationId === undefined ? NOTHING : board.watch(correlationId)),
    [board, correlationId],
  );
  const correlation = useSyncExternalStore(watch.subscribe, watch.state, NOTHING.state);
  return useMemo(() => ({ board, correlation }), [board, correlation]);
}
