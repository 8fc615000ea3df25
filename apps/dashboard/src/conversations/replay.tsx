import { EMPTY, reduce, type Transcript } from "@khala/client";
import { useKhala } from "@khala/client/react";
import { type ReactNode, useMemo } from "react";
import { Answered } from "../parts/answered.tsx";
import { useAsk } from "../parts/asking.ts";
import { Empty } from "../parts/states.tsx";
import { conversationWords } from "../strings/conversations.ts";
import { Going } from "./chat.tsx";
import { Messages } from "./messages.tsx";
import { ReplayBar } from "./replay_bar.tsx";
import { Replay } from "./replay_steps.ts";
import type { LogEvent } from "./types.ts";

const words = conversationWords.replay;
const PAGE = 1_000;
const MOST = 20_000;

export interface ReplayViewProps {
  readonly convId: string;
  readonly header: (health: ReactNode) => ReactNode;
  readonly position: number | undefined;
  readonly onMove: (position: number) => void;
  readonly onLeave: () => void;
}

/** The conversation as it was at any entry of its log. */
export function ReplayView({ convId, header, position, onMove, onLeave }: ReplayViewProps) {
  const log = useLog(convId);
  return (
    <>
      {header(null)}
      <Answered asked={log}>
        {({ events, isWhole }) =>
          events.length === 0 ? (
            <Empty title={words.emptyTitle} icon="conversations">
              {words.emptyText}
            </Empty>
          ) : (
            <Replayed
              events={events}
              isWhole={isWhole}
              position={Math.min(position ?? events.length, events.length)}
              onMove={onMove}
              onLeave={onLeave}
            />
          )
        }
      </Answered>
    </>
  );
}

interface ReplayedProps {
  readonly events: readonly LogEvent[];
  readonly isWhole: boolean;
  readonly position: number;
  readonly onMove: (position: number) => void;
  readonly onLeave: () => void;
}

function Replayed({ events, isWhole, position, onMove, onLeave }: ReplayedProps) {
  const replay = useMemo(() => new Replay<Transcript, LogEvent>(events, EMPTY, reduce), [events]);
  const transcript = useMemo(() => replay.at(position), [replay, position]);
  return (
    <>
      {!isWhole && <p className="room-note">{words.partial(events.length)}</p>}
      {transcript.messages.length === 0 ? (
        <Empty title={words.nothingYet} />
      ) : (
        <Messages messages={transcript.messages}>
          <Going view={transcript} />
        </Messages>
      )}
      <ReplayBar
        position={position}
        length={events.length}
        what={eventWord(events[position - 1])}
        onMove={onMove}
        onLeave={onLeave}
      />
    </>
  );
}

function eventWord(frame: LogEvent | undefined): string {
  const [name] = Object.keys(frame?.event ?? {});
  return name === undefined ? words.nothingYet : (words.events[name] ?? name);
}

/** The log up to a bound, page by page. */
function useLog(convId: string) {
  const { conversations } = useKhala();
  return useAsk(`log ${convId}`, async (signal) => {
    const events: LogEvent[] = [];
    let next: string | undefined;
    do {
      const page = await conversations.log(convId, {
        limit: PAGE,
        signal,
        ...(next !== undefined && { after: next }),
      });
      events.push(...(page.events ?? []));
      next = page.next;
    } while (next !== undefined && events.length < MOST);
    return { events, isWhole: next === undefined };
  });
}
