import { useBoard } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useMemo, useState } from "react";
import { useFrozen } from "../../data/pause.tsx";
import { links, setParams, useParam } from "../../router.ts";
import { Timeline } from "../../ui/charts/timeline.tsx";
import { Button } from "../../ui/controls/button.tsx";
import { Confirm } from "../../ui/controls/confirm.tsx";
import { SearchInput, Toolbar } from "../../ui/controls/toolbar.tsx";
import { Fetched } from "../../ui/feedback/fetched.tsx";
import { Empty, Failure } from "../../ui/feedback/notices.tsx";
import { StateBadge, stateOf } from "../../ui/feedback/state_badge.tsx";
import { useToast } from "../../ui/feedback/toast.tsx";
import { Ago } from "../../ui/format/ago.tsx";
import { shortenMiddle } from "../../ui/format/id.tsx";
import { countText, plural } from "../../ui/format/numbers.ts";
import { TextLink } from "../../ui/panel/detail_panel.tsx";
import { labelOf } from "../artifact_label.ts";
import type { Artifact } from "../board_types.ts";
import type { BoardState } from "../use_board.ts";
import { correlationLanes } from "./correlation_lanes.ts";
import type { CorrelationRow } from "./correlation_rows.ts";
import { useCorrelation } from "./use_correlation.ts";

const MAX_RECENT = 50;

/** Everything that one request caused, as a timeline; first the choice of the correlation. */
export function Correlation({ board }: { readonly board: BoardState }) {
  const [id] = useParam("correlation");
  if (id === undefined)
    return <Fetched state={board.artifacts}>{(data) => <CorrelationChooser artifacts={data} />}</Fetched>;
  return (
    <Fetched state={board.agents}>
      {(agents) => <CorrelationView key={id} id={id} agents={agents.map(({ name }) => name)} />}
    </Fetched>
  );
}

function CorrelationChooser({ artifacts }: { readonly artifacts: readonly Artifact[] }) {
  const [text, setText] = useState("");
  const recent = recentCorrelations(artifacts);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim() !== "") setParams({ correlation: text.trim(), tab: "" });
  };
  const show = (
    <Button type="submit" disabled={text.trim() === ""}>
      Show
    </Button>
  );
  return (
    <>
      <form onSubmit={submit}>
        <Toolbar label="Correlation" end={show}>
          <SearchInput label="Correlation" placeholder="Correlation id" value={text} onChange={setText} />
        </Toolbar>
      </form>
      {recent.length === 0 ? (
        <Empty title="No recent correlations" icon="blackboard">
          A correlation groups everything that one request caused: artifacts, tasks, retries and waits.
        </Empty>
      ) : (
        <section className="correlation-recent">
          <h2>Recent correlations</h2>
          <ul>
            {recent.map(({ id, label, types, at }) => (
              <li key={id}>
                <a className="artifact-link" href={links.correlation(id)} title={id}>
                  <strong>{label ?? types.join(" → ")}</strong>
                  <span className={label ? "quiet" : "quiet mono"}>
                    {label ? types.join(" → ") : shortenMiddle(id, 20)}
                  </span>
                  <Ago at={at} />
                </a>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

/** The correlations of the recent artifacts, with their types, oldest first. */
function recentCorrelations(artifacts: readonly Artifact[]) {
  // An artifact without a correlation starts one with its own id.
  const groups = Map.groupBy(artifacts, ({ id, correlation_id }) => correlation_id || id);
  return [...groups].slice(0, MAX_RECENT).map(([id, group]) => ({
    id,
    label: group.toReversed().map(labelOf).find(Boolean),
    types: [...new Set(group.map(({ type }) => type).reverse())],
    at: group[0]!.created_at,
  }));
}

interface CorrelationViewProps {
  readonly id: string;
  readonly agents: readonly string[];
}

function CorrelationView({ id, agents }: CorrelationViewProps) {
  const [bar] = useParam("bar");
  const state = useCorrelation(id, agents);
  const data = useFrozen(state.data);
  const rows = data?.rows;
  const lanes = useMemo(() => correlationLanes(rows ?? []), [rows]);
  return (
    <>
      <CorrelationBar id={id} traceId={data?.traceId} onChanged={state.refetch} />
      <Fetched state={state}>
        {({ hasTraces }) =>
          lanes.length === 0 ? (
            <Empty title="Correlation not found" icon="search">
              It may be older than the recent artifacts, or belong to another org.
            </Empty>
          ) : (
            <div className="correlation-scroll">
              <Timeline
                label={`Timeline of ${id}`}
                lanes={lanes}
                selected={bar}
                onSelect={(next) => select(next, rows ?? [])}
              />
              {!hasTraces && (
                <p className="note">
                  This server keeps no traces: only artifacts and dead letters are shown.
                </p>
              )}
            </div>
          )
        }
      </Fetched>
    </>
  );
}

/** Opens the artifact or the dead letter of a bar. */
function select(bar: string, rows: readonly CorrelationRow[]): void {
  const row = rows.find(({ id }) => id === bar.split("#")[0]);
  if (row?.kind === "dead")
    setParams({ letter: row.refers, of: row.name, artifact: "", bar }, { replace: true });
  else if (row) setParams({ artifact: row.refers, letter: "", of: "", bar }, { replace: true });
}

const WAITS = {
  approvals: "waiting for approval",
  gathering: "in a batch or join",
  scheduled: "scheduled",
  retries: "waiting for retry",
  paused: "paused",
};

/** How many of its tasks wait, and for what. */
function waitsText(waits: Readonly<Partial<Record<keyof typeof WAITS, string>>> = {}): readonly string[] {
  return (Object.keys(WAITS) as (keyof typeof WAITS)[])
    .filter((name) => Number(waits[name] ?? 0) > 0)
    .map((name) => `${countText(Number(waits[name]))} ${WAITS[name]}`);
}

interface CorrelationBarProps {
  readonly id: string;
  readonly traceId: string | undefined;
  readonly onChanged: () => void;
}

/** The live state of the correlation, and the buttons for all of its tasks. */
function CorrelationBar({ id, traceId, onChanged }: CorrelationBarProps) {
  const { board, correlation } = useBoard(id);
  const state = useFrozen(correlation.data);
  const toast = useToast();
  const status = state?.status ?? "";
  const change = useMutation({
    mutationFn: async (action: "pause" | "cancel" | "resume") => {
      if (action === "pause") {
        await board.pauseCorrelation(id);
        return "Paused. Running tasks continue.";
      }
      if (action === "cancel") {
        await board.cancel(id);
        return "Cancelled. Open tasks move to the dead-letter queue.";
      }
      const { replayed = 0 } = await board.resumeCorrelation(id);
      return status === "paused" ? "Resumed." : `${plural(replayed, "dead letter")} replayed.`;
    },
    onSuccess(text) {
      onChanged();
      toast(text);
    },
  });
  const [isCancelling, setCancelling] = useState(false);
  const isOpen = status === "running" || status === "waiting";
  const busy = change.isPending;
  return (
    <>
      <Toolbar
        label={`Correlation ${id}`}
        end={
          <>
            {traceId !== undefined && <TextLink href={links.trace(traceId)}>Trace</TextLink>}
            {isOpen && (
              <Button
                icon="pause"
                busy={busy}
                title="Queued tasks wait until it is resumed. Running tasks continue."
                onClick={() => change.mutate("pause")}
              >
                Pause
              </Button>
            )}
            {(isOpen || status === "paused") && (
              <Button
                icon="stop"
                busy={busy}
                title="Running tasks are cancelled. Open tasks move to the dead-letter queue."
                onClick={() => setCancelling(true)}
              >
                Cancel
              </Button>
            )}
            {(status === "paused" || status === "failed" || status === "cancelled") && (
              <Button
                icon="retry"
                busy={busy}
                title="Ends a pause, or replays the dead letters of a failed or cancelled correlation."
                onClick={() => change.mutate("resume")}
              >
                Resume
              </Button>
            )}
          </>
        }
      >
        <code className="correlation-id">{id}</code>
        {state && (
          <>
            <StateBadge state={stateOf(status)} word={status} />
            <span className="quiet">
              {[
                plural(Number(state.artifacts ?? 0), "artifact"),
                `${countText(Number(state.open ?? 0))} open`,
                ...(Number(state.dead ?? 0) > 0 ? [plural(Number(state.dead), "dead letter")] : []),
                ...waitsText(state.waits),
              ].join(" · ")}
            </span>
          </>
        )}
      </Toolbar>
      {change.error && <Failure error={change.error} inline />}
      <Confirm
        open={isCancelling}
        title="Cancel this correlation?"
        about="Running tasks are cancelled. Open tasks move to the dead-letter queue, and can be replayed from there."
        action="Cancel correlation"
        icon="stop"
        cancel="Keep it"
        onConfirm={() => {
          setCancelling(false);
          change.mutate("cancel");
        }}
        onClose={() => setCancelling(false)}
      />
    </>
  );
}
