import { createContext, type ReactNode, use, useMemo, useRef, useState } from "react";
import { partWords } from "../strings/parts.ts";
import { Button } from "./button.tsx";
import { Tooltip } from "./tooltip.tsx";

interface Pausing {
  readonly paused: boolean;
  readonly setPaused: (paused: boolean) => void;
}

const PauseContext = createContext<Pausing>({ paused: false, setPaused: () => {} });

/** Holds whether the view is frozen. Once, around the rooms. */
export function PauseProvider({ children }: { readonly children: ReactNode }) {
  const [paused, setPaused] = useState(false);
  return <PauseContext value={useMemo(() => ({ paused, setPaused }), [paused])}>{children}</PauseContext>;
}

/** Whether the person froze the view. */
export function usePaused(): boolean {
  return use(PauseContext).paused;
}

/** The value, or the one from before the pause while the view is frozen. */
export function useFrozen<Value>(value: Value): Value {
  const paused = usePaused();
  const kept = useRef(value);
  if (!paused) kept.current = value;
  return kept.current;
}

/** Freezes the view, and lets it go on. */
export function Pause() {
  const { paused, setPaused } = use(PauseContext);
  return (
    <Tooltip text={paused ? partWords.pausedHint : partWords.pauseHint}>
      <Button
        kind={paused ? "plain" : "bare"}
        icon={paused ? "play" : "pause"}
        aria-pressed={paused}
        aria-label={paused ? partWords.resume : partWords.pause}
        onClick={() => setPaused(!paused)}
        {...(paused ? { children: partWords.resume } : {})}
      />
    </Tooltip>
  );
}
