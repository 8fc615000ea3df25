import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { completeAll } from "../data/wire.ts";
import { links, setParams, useParam } from "../router.ts";
import { useSession } from "../session.tsx";
import { Empty } from "../ui/feedback/notices.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Id } from "../ui/format/id.tsx";
import { durationText } from "../ui/format/numbers.ts";
import { TextLink } from "../ui/panel/detail_panel.tsx";
import { type Column, numbers } from "../ui/table/columns.ts";
import { FilteredTable } from "../ui/table/filtered_table.tsx";
import { TraceView } from "./trace_view.tsx";

const EVERY_MS = 2_000;
const TRACE = { trace_id: "", name: "", started_at: "", duration_ms: 0, spans: 0, status: "ok" };
type TraceSummary = Readonly<typeof TRACE>;
const NO_TRACES: readonly TraceSummary[] = [];

const COLUMNS: readonly Column<TraceSummary>[] = [
  {
    head: "Name",
    width: "minmax(140px, 2fr)",
    cell: ({ trace_id, name }) => <a href={links.trace(trace_id)}>{name}</a>,
  },
  {
    head: "Id",
    width: "minmax(150px, 1fr)",
    wideOnly: true,
    cell: ({ trace_id }) => <Id value={trace_id} />,
  },
  {
    head: "State",
    width: 80,
    cell: ({ status, name }) =>
      status !== "error" ? (
        <StateBadge state="ok" />
      ) : name.endsWith(" retried") ? (
        <StateBadge state="waiting" word="retried" />
      ) : (
        <StateBadge state="failed" />
      ),
  },
  numbers("Spans", 60, ({ spans }) => spans),
  { head: "Duration", width: 80, align: "end", cell: ({ duration_ms }) => durationText(duration_ms) },
  numbers("Started", 80, ({ started_at }) => <Ago at={started_at} />),
];

const KEYS = [
  { name: "name", about: "Part of the name" },
  { name: "status", about: "State", values: ["ok", "error"] },
];

const rowKey = ({ trace_id }: TraceSummary) => trace_id;
const fields = ({ trace_id, name, status }: TraceSummary) => ({ id: trace_id, name, status });
const open = (trace: string | undefined) => setParams({ trace, span: undefined });

/** The list of traces, or the one that is selected. */
export function Traces() {
  const [trace] = useParam("trace");
  return trace === undefined ? <TraceList /> : <TraceView traceId={trace} />;
}

function TraceList() {
  const { ops } = useKhala();
  const { traceUrl } = useSession().about;
  const [correlation_id] = useParam("correlation");
  const state = useFetch(
    ["traces", correlation_id],
    async () =>
      completeAll(
        TRACE,
        (await ops.traces({ limit: 200, ...(correlation_id && { correlation_id }) })).traces,
      ),
    EVERY_MS,
  );
  if (state.error?.code === "not_found" && state.data === undefined && traceUrl !== undefined)
    return (
      <Empty
        title="Traces are in your tracing UI"
        icon="out"
        action={
          <a className="text-link" href={new URL(traceUrl).origin} target="_blank" rel="noreferrer">
            Open the tracing UI
          </a>
        }
      >
        This server exports its traces to a collector.
      </Empty>
    );
  return (
    <FilteredTable
      label="Traces"
      state={state}
      columns={COLUMNS}
      rows={state.data ?? NO_TRACES}
      rowKey={rowKey}
      fields={fields}
      keys={KEYS}
      noMatch="No trace matches the filter"
      onSelect={open}
      before={
        correlation_id !== undefined && (
          <>
            <span className="quiet">Correlation</span> <Id value={correlation_id} />
            <TextLink href={links.traces()}>All traces</TextLink>
          </>
        )
      }
      empty={
        <Empty title="No traces" icon="operations">
          Send a message or publish an artifact: each request leaves a trace.
        </Empty>
      }
    />
  );
}
