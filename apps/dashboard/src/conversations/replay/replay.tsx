import { EMPTY, reduce, type Transcript } from "@khala/client";
import { useKhala } from "@khala/client/react";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useFetch } from "../../data/fetch.ts";
import { Button } from "../../ui/controls/button.tsx";
import { Select } from "../../ui/controls/select.tsx";
import { Fetched } from "../../ui/feedback/fetched.tsx";
import { Empty } from "../../ui/feedback/notices.tsx";
import { countText } from "../../ui/format/numbers.ts";
import { RunStatus } from "../chat.tsx";
import { ConversationId } from "../message_file.tsx";
import { Messages } from "../messages.tsx";
import type { LogEvent } from "../types.ts";
import { Replay } from "./replay_steps.ts";

const PAGE = 1_000;
const MAX_EVENTS = 20_000;
const BEFORE = "Before the first event";
const EVENTS: Readonly<Record<string, string>> = {
  text_delta: "text",
  reasoning_delta: "reasoning",
  tool_call: "tool call",
  custom: "data",
};

interface Position {
  readonly onMove: (position: number) => void;
  readonly onLeave: () => void;
}

export interface ReplayViewProps extends Position {
  readonly convId: string;
  readonly header: (health: ReactNode) => ReactNode;
  /** Undefined: at the end. */
  readonly position: number | undefined;
}

/** The conversation as it was at any event of its log. */
export function ReplayView({ convId, header, position, ...rest }: ReplayViewProps) {
  const log = useLog(convId);
  return (
    <>
      {header(null)}
      <Fetched state={log}>
        {({ events, isComplete }) =>
          events.length === 0 ? (
            <Empty title="Nothing to replay" icon="conversations">
              The log is empty.
            </Empty>
          ) : (
            <Replayed
              {...rest}
              convId={convId}
              events={events}
              isComplete={isComplete}
              position={Math.min(position ?? events.length, events.length)}
            />
          )
        }
      </Fetched>
    </>
  );
}

interface ReplayedProps extends Position {
  readonly convId: string;
  readonly events: readonly LogEvent[];
  readonly isComplete: boolean;
  readonly position: number;
}

function Replayed({ convId, events, isComplete, position, ...rest }: ReplayedProps) {
  const replay = useMemo(() => new Replay<Transcript, LogEvent>(events, EMPTY, reduce), [events]);
  const transcript = useMemo(() => replay.at(position), [replay, position]);
  return (
    <>
      {!isComplete && <p className="note">Only the first {countText(events.length)} events are shown.</p>}
      {transcript.messages.length === 0 ? (
        <Empty title={BEFORE} />
      ) : (
        <ConversationId value={convId}>
          <Messages messages={transcript.messages}>
            <RunStatus view={transcript} />
          </Messages>
        </ConversationId>
      )}
      <ReplayBar
        {...rest}
        position={position}
        length={events.length}
        event={eventName(events[position - 1])}
      />
    </>
  );
}

function eventName(frame: LogEvent | undefined): string {
  const [name] = Object.keys(frame?.event ?? {});
  return name === undefined ? BEFORE : (EVENTS[name] ?? name.replaceAll("_", " "));
}

/** The log up to a limit, page by page. */
function useLog(convId: string) {
  const { conversations } = useKhala();
  return useFetch(["log", convId], async (signal) => {
    const events: LogEvent[] = [];
    let next: string | undefined;
    do {
      const options = { limit: PAGE, signal, ...(next !== undefined && { after: next }) };
      const page = await conversations.log(convId, options);
      events.push(...(page.events ?? []));
      next = page.next;
    } while (next !== undefined && events.length < MAX_EVENTS);
    return { events, isComplete: next === undefined };
  });
}

/** Events per second, for each speed. */
const SPEEDS = { "1×": 10, "4×": 40, "16×": 160 } as const;
type Speed = keyof typeof SPEEDS;
const SPEED_OPTIONS = (Object.keys(SPEEDS) as Speed[]).map((value) => ({ value, label: value }));
const TICK_MS = 50;

interface ReplayBarProps extends Position {
  readonly position: number;
  readonly length: number;
  /** The event at the position. */
  readonly event: string;
}

/** A slider over the log, with a play button. Arrow keys move by one event, Page keys by a tenth. */
function ReplayBar({ position, length, event, onMove, onLeave }: ReplayBarProps) {
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState<Speed>("4×");
  const latest = useRef({ position, onMove });
  latest.current = { position, onMove };

  useEffect(() => {
    if (!playing) return;
    const perTick = Math.max(1, Math.round((SPEEDS[speed] * TICK_MS) / 1000));
    const timer = setInterval(
      () => {
        const next = Math.min(length, latest.current.position + perTick);
        latest.current.onMove(next);
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
    <div className="replay-bar" role="group" aria-label="Replay">
      <Button kind="primary" icon={playing ? "pause" : "play"} onClick={play}>
        {playing ? "Pause" : "Play"}
      </Button>
      <input
        type="range"
        min={0}
        max={length}
        value={position}
        aria-label="Position in the log"
        aria-valuetext={`Event ${position} of ${length}: ${event}`}
        onChange={({ target }) => {
          setPlaying(false);
          onMove(Number(target.value));
        }}
      />
      <span className="replay-place">
        <span>
          {countText(position)} of {countText(length)}
        </span>
        <span className="quiet">{event}</span>
      </span>
      <Select label="Speed" value={speed} options={SPEED_OPTIONS} onChange={setSpeed} />
      <Button onClick={onLeave}>Back to live</Button>
    </div>
  );
}
