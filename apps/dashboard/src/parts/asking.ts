import { useCallback, useEffect, useRef, useState } from "react";
import { usePaused } from "./pause.tsx";
import type { FailureLike } from "./states.tsx";

export interface Asked<Answer> {
  /** The last answer; it stays while the next one is on its way, and when that fails. */
  readonly data: Answer | undefined;
  readonly error: FailureLike | undefined;
  /** Nothing was answered yet. */
  readonly loading: boolean;
  /** Asks now. */
  readonly again: () => void;
}

export interface AskOptions {
  /** Asks again after the last answer; not while the view is paused or hidden. */
  readonly everyMs?: number;
}

/**
 * Asks the server, and again whenever `question` changes: a text that names what is asked, undefined to ask nothing. The
 * answer to an older question is never shown as that of a newer one.
 */
export function useAsk<Answer>(
  question: string | undefined,
  ask: (signal: AbortSignal) => Promise<Answer>,
  { everyMs }: AskOptions = {},
): Asked<Answer> {
  const [state, setState] = useState<{ question?: string; data?: Answer; error?: FailureLike }>({});
  const [round, setRound] = useState(0);
  const paused = usePaused();
  const latest = useRef(ask);
  latest.current = ask;

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new round asks the same question again.
  useEffect(() => {
    if (question === undefined) return;
    const abort = new AbortController();
    latest.current(abort.signal).then(
      (data) => abort.signal.aborted || setState({ question, data }),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const failure = asFailure(error);
        setState((old) =>
          old.question === question && old.data !== undefined
            ? { question, data: old.data, error: failure }
            : { question, error: failure },
        );
      },
    );
    return () => abort.abort();
  }, [question, round]);

  const again = useCallback(() => setRound((count) => count + 1), []);
  const isAnswered = state.question === question && question !== undefined;
  // biome-ignore lint/correctness/useExhaustiveDependencies: counts from each answer.
  useEffect(() => {
    if (everyMs === undefined || paused || !isAnswered) return;
    const timer = setTimeout(function fire() {
      if (document.visibilityState === "visible") again();
      else document.addEventListener("visibilitychange", again, { once: true });
    }, everyMs);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", again);
    };
  }, [state, everyMs, paused, isAnswered, again]);

  return {
    data: isAnswered ? state.data : undefined,
    error: isAnswered ? state.error : undefined,
    loading: question !== undefined && !isAnswered,
    again,
  };
}

/** Any thrown thing as a failure that can be shown. */
export function asFailure(error: unknown): FailureLike {
  if (error instanceof Error) {
    const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
    return code === undefined ? { message: error.message } : { message: error.message, code };
  }
  return { message: String(error) };
}
