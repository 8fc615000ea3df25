import { useKhala } from "@khala/client/react";
import { Ago } from "../parts/ago.tsx";
import { useAsk } from "../parts/asking.ts";
import { Id } from "../parts/id.tsx";
import { durationText } from "../parts/numbers.ts";
import { StateBadge } from "../parts/state_badge.tsx";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { hrefTo, links, setParams, useParam } from "../router.ts";
import { useSession } from "../session.tsx";
import { opsWords } from "../strings/operations.ts";
import { FilterBar, useFilter } from "./filtered.tsx";
import { readTraces, type TraceSummary } from "./ops_read.ts";
import { TraceView } from "./trace_view.tsx";

const words = opsWords.traces;
const EVERY_MS = 2_000;
const NONE: readonly TraceSummary[] = [];

const COLUMNS: readonly Column<TraceSummary>[] = [
  {
    id: "name",
    head: words.name,
    cell: ({ id, name }) => <a href={links.trace(id)}>{name}</a>,
    width: "minmax(140px, 2fr)",
  },
  { id: "id", head: "Id", cell: ({ id }) => <Id value={id} />, width: "minmax(150px, 1fr)", wideOnly: true },
  {
    id: "status",
    head: words.status,
    cell: ({ status }) =>
      status === "error" ? <StateBadge state="failed" word={words.failed} /> : <StateBadge state="ok" />,
    width: 80,
  },
  { id: "spans", head: words.spans, cell: ({ spans }) => spans, width: 60, align: "end", wideOnly: true },
  { id: "length", head: words.length, cell: ({ ms }) => durationText(ms), width: 80, align: "end" },
  {
    id: "started",
    head: words.started,
    cell: ({ startedAt }) => <Ago at={startedAt} />,
    width: 80,
    align: "end",
    wideOnly: true,
  },
];

const KEYS = [
  { name: "name", about: words.keys.name },
  { name: "status", about: words.keys.status, values: ["ok", "error"] },
];

const rowKey = ({ id }: TraceSummary) => id;
const fields = ({ id, name, status }: TraceSummary) => ({ id, name, status });
const open = (trace: string | undefined) => setParams({ trace, span: undefined });

/** Requests and all that came of them; one of them as a waterfall. */
export function Traces() {
  const [trace] = useParam("trace");
  return trace === undefined ? <TraceList /> : <TraceView traceId={trace} />;
}

function TraceList() {
  const { ops } = useKhala();
  const { traceUrl } = useSession().about;
  const [correlation] = useParam("correlation");
  const asked = useAsk(
    `traces ${correlation ?? ""}`,
    async () =>
      readTraces(await ops.traces({ limit: 200, ...(correlation && { correlation_id: correlation }) })),
    { everyMs: EVERY_MS },
  );
  const all = asked.data ?? NONE;
  const { rows, text } = useFilter(all, fields);
  if (asked.loading) return <Loading />;
  if (asked.error && !asked.data)
    return asked.error.code === "not_found" && traceUrl !== undefined ? (
      <Empty
        title={words.elsewhere}
        icon="out"
        action={
          <a className="text-link" href={new URL(traceUrl).origin} target="_blank" rel="noreferrer">
            {words.open}
          </a>
        }
      >
        {words.elsewhereBody}
      </Empty>
    ) : (
      <Failure error={asked.error} onRetry={asked.again} />
    );
  return (
    <>
      <FilterBar label={words.label} keys={KEYS} shown={rows.length} all={all.length}>
        {correlation !== undefined && (
          <>
            <span className="quiet">{words.ofCorrelation}</span> <Id value={correlation} />
            <a className="text-link" href={hrefTo("operations", { tab: "traces" })}>
              {words.all}
            </a>
          </>
        )}
      </FilterBar>
      {asked.error && <Failure error={asked.error} inline onRetry={asked.again} />}
      <Table
        label={words.label}
        columns={COLUMNS}
        rows={rows}
        rowKey={rowKey}
        onSelect={open}
        empty={
          text === "" ? (
            <Empty title={words.empty} icon="operations">
              {words.emptyBody}
            </Empty>
          ) : (
            <Empty title={words.noMatch} icon="search" />
          )
        }
      />
    </>
  );
}
