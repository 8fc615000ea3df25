import { useBoard } from "@khala/client/react";
import { useMemo, useState } from "react";
import { Answered } from "../parts/answered.tsx";
import { asFailure } from "../parts/asking.ts";
import { Button } from "../parts/button.tsx";
import { useFrozen } from "../parts/pause.tsx";
import { StateBadge, stateOf } from "../parts/state_badge.tsx";
import { Empty, Failure, type FailureLike } from "../parts/states.tsx";
import { Timeline } from "../parts/timeline.tsx";
import { Toolbar } from "../parts/toolbar.tsx";
import { links, setParams } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import { correlationLanes } from "./correlation_lanes.ts";
import type { CorrelationRow } from "./correlation_timeline.ts";
import { useCorrelation } from "./use_correlation.ts";

const words = boardWords.timeline;

export interface CorrelationViewProps {
  readonly id: string;
  /** The names of the agents, whose dead letters are looked through. */
  readonly agents: readonly string[];
  readonly selected: string | undefined;
}

/** Everything that came of one request, in time. */
export function CorrelationView({ id, agents, selected }: CorrelationViewProps) {
  const asked = useCorrelation(id, agents);
  const story = useFrozen(asked.data);
  const rows = story?.rows;
  const lanes = useMemo(() => correlationLanes(rows ?? []), [rows]);
  return (
    <>
      <CorrelationBar id={id} traceId={story?.traceId} onChanged={asked.again} />
      <Answered asked={asked}>
        {({ hasTraces }) =>
          lanes.length === 0 ? (
            <Empty title={words.unknown} icon="search">
              {words.unknownText}
            </Empty>
          ) : (
            <div className="correlation-scroll">
              <Timeline
                label={words.label(id)}
                lanes={lanes}
                selected={selected}
                onSelect={(bar) => open(bar, rows ?? [])}
              />
              {!hasTraces && <p className="room-note">{words.noTraces}</p>}
            </div>
          )
        }
      </Answered>
    </>
  );
}

/** Shows what a bar stands for: the artifact, or the dead letter. */
function open(bar: string, rows: readonly CorrelationRow[]): void {
  const row = rows.find(({ id }) => id === bar.split("#")[0]);
  if (row?.kind === "dead")
    setParams({ letter: row.refers, of: row.name, artifact: "", bar }, { replace: true });
  else if (row) setParams({ artifact: row.refers, letter: "", of: "", bar }, { replace: true });
}

type Wait = keyof typeof words.waits;

/** What of it waits, and for what. */
function waitsText(waits: Readonly<Partial<Record<Wait, string>>> = {}): string {
  const names = Object.keys(words.waits) as Wait[];
  return names
    .filter((name) => Number(waits[name] ?? 0) > 0)
    .map((name) => ` · ${words.waits[name](Number(waits[name]))}`)
    .join("");
}

interface CorrelationBarProps {
  readonly id: string;
  readonly traceId: string | undefined;
  readonly onChanged: () => void;
}

/** How it stands, live, and what can be done with all of it. */
function CorrelationBar({ id, traceId, onChanged }: CorrelationBarProps) {
  const { board, correlation } = useBoard(id);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<FailureLike>();
  const [said, setSaid] = useState<string>();
  const state = useFrozen(correlation.data);

  const act = async (what: () => Promise<string>) => {
    setBusy(true);
    setError(undefined);
    try {
      setSaid(await what());
      onChanged();
    } catch (failure) {
      setError(asFailure(failure));
    } finally {
      setBusy(false);
    }
  };
  const pause = async () => {
    await board.pauseCorrelation(id);
    return words.paused;
  };
  const cancel = async () => {
    await board.cancel(id);
    return words.cancelled;
  };
  const resume = async () => {
    const { replayed = 0 } = await board.resumeCorrelation(id);
    return status === "paused" ? words.goesOn : words.resumed(replayed);
  };

  const status = state?.status ?? "";
  return (
    <>
      <Toolbar
        label={words.label(id)}
        end={
          <>
            {traceId !== undefined && (
              <a className="text-link" href={links.trace(traceId)}>
                {words.trace}
              </a>
            )}
            {(status === "running" || status === "waiting") && (
              <Button icon="pause" busy={busy} title={words.pauseHint} onClick={() => act(pause)}>
                {words.pause}
              </Button>
            )}
            {(status === "running" || status === "waiting" || status === "paused") && (
              <Button icon="stop" busy={busy} title={words.cancelHint} onClick={() => act(cancel)}>
                {words.cancel}
              </Button>
            )}
            {(status === "paused" || status === "failed" || status === "cancelled") && (
              <Button icon="retry" busy={busy} title={words.resumeHint} onClick={() => act(resume)}>
                {words.resume}
              </Button>
            )}
          </>
        }
      >
        <code className="correlation-id">{id}</code>
        {state && (
          <>
            <StateBadge state={stateOf(status)} word={words.statuses[status] ?? status} />
            <span className="quiet">
              {words.counts(Number(state.artifacts ?? 0), Number(state.open ?? 0), Number(state.dead ?? 0))}
              {waitsText(state.waits)}
            </span>
          </>
        )}
        <span role="status">{said}</span>
      </Toolbar>
      {error && <Failure error={error} inline />}
    </>
  );
}
