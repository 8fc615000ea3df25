import { createContext, type ReactNode, use, useMemo, useRef, useState } from "react";
import { Button } from "../ui/controls/button.tsx";
import { Tooltip } from "../ui/controls/tooltip.tsx";

interface Pausing {
  readonly paused: boolean;
  readonly setPaused: (paused: boolean) => void;
}

const PauseContext = createContext<Pausing>({ paused: false, setPaused: () => {} });

/** Holds whether the view is paused. Once, around the pages. */
export function PauseProvider({ children }: { readonly children: ReactNode }) {
  const [paused, setPaused] = useState(false);
  return <PauseContext value={useMemo(() => ({ paused, setPaused }), [paused])}>{children}</PauseContext>;
}

/** Whether the user paused the view. */
export function usePaused(): boolean {
  return use(PauseContext).paused;
}

/** The value, or the one from before the pause while the view is paused. */
export function useFrozen<Value>(value: Value): Value {
  const paused = usePaused();
  const last = useRef(value);
  if (!paused) last.current = value;
  return last.current;
}

/** Pauses and resumes the view. */
export function PauseButton() {
  const { paused, setPaused } = use(PauseContext);
  return (
    <Tooltip
      text={paused ? "Updates are paused." : "Pause updates on this page. The server is not affected."}
    >
      <Button
        kind={paused ? "plain" : "bare"}
        icon={paused ? "play" : "pause"}
        aria-pressed={paused}
        aria-label={paused ? "Resume" : "Pause"}
        onClick={() => setPaused(!paused)}
        {...(paused ? { children: "Resume" } : {})}
      />
    </Tooltip>
  );
}
