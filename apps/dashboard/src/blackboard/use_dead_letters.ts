import { useKhala } from "@khala/client/react";
import { useCallback, useEffect, useState } from "react";
import { asFailure } from "../parts/asking.ts";
import { usePaused } from "../parts/pause.tsx";
import type { FailureLike } from "../parts/states.tsx";
import { type DeadLetter, readDeadLetter } from "./board_types.ts";

const PAGE = 200;
const EVERY_MS = 3_000;

export interface DeadLetters {
  /** Newest first. */
  readonly rows: readonly DeadLetter[];
  /** Letters that came since; shown when `refresh` is called. */
  readonly fresh: number;
  readonly loading: boolean;
  readonly error: FailureLike | undefined;
  readonly more: boolean;
  readonly loadMore: () => void;
  readonly refresh: () => void;
}

interface State {
  readonly agent: string;
  readonly rows: readonly DeadLetter[];
  readonly next: string | undefined;
  readonly fresh: number;
  readonly error?: FailureLike;
}

/** The dead letters of an agent, page by page. What is shown stays where it is; what comes anew is counted. */
export function useDeadLetters(agent: string): DeadLetters {
  const { board } = useKhala();
  const paused = usePaused();
  const [state, setState] = useState<State>();
  const [round, setRound] = useState(0);
  const [isMore, setMore] = useState(false);
  const current = state?.agent === agent ? state : undefined;
  const next = current?.next;

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new round reads from the start.
  useEffect(() => {
    let isOld = false;
    board.deadLetters(agent, { limit: PAGE }).then(
      ({ dead_letters = [], next }) => {
        if (!isOld) setState({ agent, rows: dead_letters.map(readDeadLetter), next, fresh: 0 });
      },
      (error: unknown) => {
        if (!isOld)
          setState((old) => ({
            ...(old?.agent === agent ? old : { agent, rows: [], next: undefined, fresh: 0 }),
            error: asFailure(error),
          }));
      },
    );
    return () => {
      isOld = true;
    };
  }, [board, agent, round]);

  useEffect(() => {
    if (!isMore || next === undefined) return;
    let isOld = false;
    board.deadLetters(agent, { limit: PAGE, after: next }).then(
      ({ dead_letters = [], next: following }) => {
        if (isOld) return;
        setMore(false);
        setState(
          (old) =>
            old && { ...old, rows: [...old.rows, ...dead_letters.map(readDeadLetter)], next: following },
        );
      },
      (error: unknown) => {
        if (isOld) return;
        setMore(false);
        setState((old) => old && { ...old, error: asFailure(error) });
      },
    );
    return () => {
      isOld = true;
    };
  }, [board, agent, isMore, next]);

  // The newest page again and again: replays are marked in place, new letters are counted.
  const isReady = current !== undefined;
  useEffect(() => {
    if (!isReady || paused) return;
    const timer = setInterval(() => {
      if (document.visibilityState !== "visible") return;
      board.deadLetters(agent, { limit: PAGE }).then(
        ({ dead_letters = [], next }) =>
          setState((old) =>
            old && old.agent === agent ? compared(old, dead_letters.map(readDeadLetter), next) : old,
          ),
        (error: unknown) => setState((old) => old && { ...old, error: asFailure(error) }),
      );
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, [board, agent, isReady, paused]);

  return {
    rows: current?.rows ?? [],
    fresh: current?.fresh ?? 0,
    loading: current === undefined,
    error: current?.error,
    more: next !== undefined,
    loadMore: useCallback(() => setMore(true), []),
    refresh: useCallback(() => setRound((n) => n + 1), []),
  };
}

function compared(old: State, newest: readonly DeadLetter[], next: string | undefined): State {
  // Where nothing is shown, nothing moves.
  if (old.rows.length === 0) return { agent: old.agent, rows: newest, next, fresh: 0 };
  const now = new Map(newest.map((letter) => [letter.id, letter]));
  const shown = new Set(old.rows.map(({ id }) => id));
  const fresh = newest.filter(({ id }) => !shown.has(id)).length;
  const rows = old.rows.map((row) => {
    const again = now.get(row.id);
    return again && again.replay_id !== row.replay_id ? again : row;
  });
  const { error: _, ...rest } = old;
  const isSame = rows.every((row, index) => row === old.rows[index]);
  return { ...rest, rows: isSame ? old.rows : rows, fresh };
}
