import { useKhala } from "@khala/client/react";
import { useMemo } from "react";
import { useFetch } from "../data/fetch.ts";
import { readSpans, type Span } from "../data/spans.ts";
import { links, useParam } from "../router.ts";
import { useSession } from "../session.tsx";
import { Timeline } from "../ui/charts/timeline.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { Toolbar } from "../ui/controls/toolbar.tsx";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { Id } from "../ui/format/id.tsx";
import { durationText } from "../ui/format/numbers.ts";
import { Json } from "../ui/json/json.tsx";
import { DetailPanel, type Fact, Facts, Section, TextLink, WithPanel } from "../ui/panel/detail_panel.tsx";
import { spanLanes } from "./span_lanes.ts";

/** Requests in progress add to their trace. */
const EVERY_MS = 2_000;

/** One trace: the waterfall of its spans, and the details of the selected one. */
export function TraceView({ traceId }: { readonly traceId: string }) {
  const { ops } = useKhala();
  const { traceUrl } = useSession().about;
  const state = useFetch(
    ["trace", traceId],
    async () => {
      const trace = await ops.trace(traceId);
      return { name: trace.name, spans: readSpans(trace) };
    },
    EVERY_MS,
  );
  const [spanId, setSpan] = useParam("span");
  const spans = state.data?.spans ?? [];
  const lanes = useMemo(() => spanLanes(state.data?.spans ?? []), [state.data]);
  const selected = spans.find(({ span_id }) => span_id === spanId);
  const select = (id: string | undefined) => setSpan(id, { replace: true });
  const began = spans.reduce((least, span) => Math.min(least, span.start), Number.POSITIVE_INFINITY);
  const ended = spans.reduce((most, span) => Math.max(most, span.start + span.duration_ms), 0);
  return (
    <>
      <Toolbar
        label="Trace"
        end={
          traceUrl !== undefined && (
            <a
              className="text-link"
              href={traceUrl.replace("{trace_id}", traceId)}
              target="_blank"
              rel="noreferrer"
            >
              Open in the tracing UI
            </a>
          )
        }
      >
        <a className="back" href={links.traces()}>
          <Icon name="chevron" size={14} />
          Traces
        </a>
        <strong className="trace-name">{state.data?.name || lanes[0]?.label}</strong>
        <Id value={traceId} />
        {spans.length > 0 && <span className="quiet">{durationText(ended - began)}</span>}
      </Toolbar>
      <Fetched state={state}>
        {() => (
          <WithPanel
            panel={selected && <SpanPanel span={selected} began={began} onClose={() => select(undefined)} />}
          >
            <div className="trace-scroll">
              <Timeline label="Spans of the trace" lanes={lanes} selected={spanId} onSelect={select} />
              {!selected && <p className="quiet trace-hint">Select a span to see its details.</p>}
            </div>
          </WithPanel>
        )}
      </Fetched>
    </>
  );
}

interface SpanPanelProps {
  readonly span: Span;
  readonly began: number;
  readonly onClose: () => void;
}

function SpanPanel({ span, began, onClose }: SpanPanelProps) {
  const state = span.status === "error" ? "failed" : "ok";
  return (
    <DetailPanel title={span.name} label="Span" onClose={onClose}>
      <Facts
        facts={[
          ["State", <StateBadge key="state" state={state} />],
          ["Started after", durationText(span.start - began)],
          ["Duration", durationText(span.duration_ms)],
          ...linkedAttributes(span.attributes),
        ]}
      />
      {span.message !== "" && <Section title="Error">{span.message}</Section>}
      <Section title="Attributes">
        <Json value={span.attributes} label="Attributes" />
      </Section>
    </DetailPanel>
  );
}

const LINKED = [
  ["khala.agent", "Agent", links.agent],
  ["artifact.id", "Artifact", links.artifact],
  ["correlation_id", "Correlation", links.correlation],
  ["conv_id", "Conversation", links.conversation],
] as const;

/** Attributes that have a page of their own. */
function linkedAttributes(attributes: Span["attributes"]): readonly Fact[] {
  return LINKED.flatMap(([key, name, href]): readonly Fact[] => {
    const id = attributes[key];
    if (typeof id !== "string" || id === "") return [];
    const link = (
      <TextLink key={key} mono href={href(id)}>
        {id}
      </TextLink>
    );
    return [[name, link]];
  });
}
