import { useEffect, useRef, useState } from "react";
import { Button } from "../parts/button.tsx";
import { Select } from "../parts/select.tsx";
import { conversationWords } from "../strings/conversations.ts";

const words = conversationWords.replay;

/** Events per second, for each speed. */
const SPEEDS = { "1×": 10, "4×": 40, "16×": 160 } as const;
type Speed = keyof typeof SPEEDS;
const SPEED_OPTIONS = (Object.keys(SPEEDS) as Speed[]).map((value) => ({ value, label: value }));
const TICK_MS = 50;

export interface ReplayBarProps {
  readonly position: number;
  readonly length: number;
  /** What the event at the position is. */
  readonly what: string;
  readonly onMove: (position: number) => void;
  readonly onLeave: () => void;
}

/** A slider over the log, with a play button. Arrow keys move by an event, Page keys by a tenth. */
export function ReplayBar({ position, length, what, onMove, onLeave }: ReplayBarProps) {
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState<Speed>("4×");
  const now = useRef(position);
  now.current = position;
  const move = useRef(onMove);
  move.current = onMove;

  useEffect(() => {
    if (!playing) return;
    const perTick = Math.max(1, Math.round((SPEEDS[speed] * TICK_MS) / 1000));
    const timer = setInterval(
      () => {
        const next = Math.min(length, now.current + perTick);
        move.current(next);
        if (next >= length) setPlaying(false);
      },
      Math.max(TICK_MS, (1000 * perTick) / SPEEDS[speed]),
    );
    return () => clearInterval(timer);
  }, [playing, speed, length]);

  const play = () => {
    if (position >= length) onMove(0);
    setPlaying(!playing);
  };

  return (
    <div className="replay-bar" role="group" aria-label={words.open}>
      <Button kind="primary" icon={playing ? "pause" : "play"} onClick={play}>
        {playing ? words.pause : words.play}
      </Button>
      <input
        type="range"
        min={0}
        max={length}
        value={position}
        aria-label={words.label}
        aria-valuetext={words.value(position, length, what)}
        onChange={(event) => {
          setPlaying(false);
          onMove(Number(event.target.value));
        }}
      />
      <span className="replay-place">
        <span>{words.of(position, length)}</span>
        <span className="quiet">{what}</span>
      </span>
      <Select label={words.speed} value={speed} options={SPEED_OPTIONS} onChange={setSpeed} />
      <Button onClick={onLeave}>{words.leave}</Button>
    </div>
  );
}
