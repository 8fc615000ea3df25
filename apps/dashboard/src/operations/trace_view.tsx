import { useKhala } from "@khala/client/react";
import { useMemo } from "react";
import { useAsk } from "../parts/asking.ts";
import { DetailPanel, type Fact, Facts, Section, WithPanel } from "../parts/detail_panel.tsx";
import { Icon } from "../parts/icons.tsx";
import { Id } from "../parts/id.tsx";
import { Json } from "../parts/json.tsx";
import { durationText } from "../parts/numbers.ts";
import { StateBadge } from "../parts/state_badge.tsx";
import { Failure, Loading } from "../parts/states.tsx";
import { Timeline } from "../parts/timeline.tsx";
import { Toolbar } from "../parts/toolbar.tsx";
import { hrefTo, links, useParam } from "../router.ts";
import { useSession } from "../session.tsx";
import { opsWords } from "../strings/operations.ts";
import { readSpans, type Span } from "./ops_read.ts";
import { spanLanes } from "./span_lanes.ts";

const words = opsWords.traces;
/** What is still under way adds to its trace. */
const EVERY_MS = 2_000;

/** One trace: the waterfall of its steps, and the details of the one that is selected. */
export function TraceView({ traceId }: { readonly traceId: string }) {
  const { ops } = useKhala();
  const { traceUrl } = useSession().about;
  const asked = useAsk(`trace ${traceId}`, async () => readSpans(await ops.trace(traceId)), {
    everyMs: EVERY_MS,
  });
  const [spanId, setSpan] = useParam("span");
  const spans = asked.data;
  const lanes = useMemo(() => spanLanes(spans ?? []), [spans]);
  const selected = spans?.find(({ id }) => id === spanId);
  const [first] = lanes;
  const began = spans?.reduce((least, span) => Math.min(least, span.start), Number.POSITIVE_INFINITY) ?? 0;
  const ended = spans?.reduce((most, span) => Math.max(most, span.start + span.ms), 0) ?? 0;
  return (
    <>
      <Toolbar
        label={words.label}
        end={
          traceUrl !== undefined && (
            <a
              className="text-link"
              href={traceUrl.replace("{trace_id}", traceId)}
              target="_blank"
              rel="noreferrer"
            >
              {words.openTrace}
            </a>
          )
        }
      >
        <a className="back" href={hrefTo("operations", { tab: "traces" })}>
          <Icon name="chevron" size={14} />
          {words.back}
        </a>
        <strong className="trace-name">{first?.label}</strong>
        <Id value={traceId} />
        {spans && <span className="quiet">{durationText(ended - began)}</span>}
      </Toolbar>
      {asked.loading ? (
        <Loading />
      ) : asked.error && !spans ? (
        <Failure error={asked.error} onRetry={asked.again} />
      ) : (
        <WithPanel
          panel={
            selected && (
              <SpanPanel
                span={selected}
                began={began}
                onClose={() => setSpan(undefined, { replace: true })}
              />
            )
          }
        >
          <div className="trace-scroll">
            <Timeline
              label={words.waterfall}
              lanes={lanes}
              selected={spanId}
              onSelect={(id) => setSpan(id, { replace: true })}
            />
            {!selected && <p className="quiet trace-hint">{words.chooseStep}</p>}
          </div>
        </WithPanel>
      )}
    </>
  );
}

interface SpanPanelProps {
  readonly span: Span;
  readonly began: number;
  readonly onClose: () => void;
}

function SpanPanel({ span, began, onClose }: SpanPanelProps) {
  return (
    <DetailPanel title={span.name} label={words.details} onClose={onClose}>
      <Facts
        facts={[
          {
            name: words.status,
            value:
              span.status === "error" ? (
                <StateBadge state="failed" word={words.failed} />
              ) : (
                <StateBadge state="ok" word={words.ok} />
              ),
          },
          { name: words.began, value: durationText(span.start - began) },
          { name: words.took, value: durationText(span.ms) },
          ...linked(span.attributes),
        ]}
      />
      {span.message !== "" && <Section title={words.why}>{span.message}</Section>}
      <Section title={words.attributes}>
        <Json value={span.attributes} label={words.attributes} />
      </Section>
    </DetailPanel>
  );
}

/** What the attributes name that has a place of its own. */
function linked(attributes: Span["attributes"]): Fact[] {
  const places: readonly (readonly [key: string, name: string, href: (id: string) => string])[] = [
    ["khala.agent", words.agent, links.agent],
    ["artifact.id", words.artifact, links.artifact],
    ["correlation_id", words.correlation, links.correlation],
    ["conv_id", words.conversation, links.conversation],
  ];
  return places.flatMap(([key, name, href]) => {
    const id = attributes[key];
    return typeof id === "string" && id !== "" ? [{ name, value: <Place id={id} href={href(id)} /> }] : [];
  });
}

function Place({ id, href }: { readonly id: string; readonly href: string }) {
  return (
    <a className="text-link mono" href={href}>
      {id}
    </a>
  );
}
