import { useMemo } from "react";
import { type Sample, useOverview } from "../data/overview.tsx";
import { Chart, type Series } from "../ui/charts/chart.tsx";
import { Failure, Loading } from "../ui/feedback/notices.tsx";
import { durationText, rateText } from "../ui/format/numbers.ts";

interface Plot {
  readonly title: string;
  readonly format: (value: number) => string;
  readonly lines: readonly (Omit<Series, "values"> & { readonly of: (sample: Sample) => number })[];
}

const PLOTS: readonly Plot[] = [
  {
    title: "Messages to sockets per second",
    format: rateText,
    lines: [{ label: "messages", of: ({ messages_per_s }) => messages_per_s }],
  },
  {
    title: "Work per second",
    format: rateText,
    lines: [
      { label: "updates", of: ({ updates_per_s }) => updates_per_s },
      { label: "events", colour: "working", of: ({ events_per_s }) => events_per_s },
      { label: "tasks", colour: "ok", of: ({ tasks_per_s }) => tasks_per_s },
    ],
  },
  {
    title: "CPU, % of one core",
    format: (value) => `${rateText(value)} %`,
    lines: [{ label: "CPU", of: ({ cpu_percent }) => cpu_percent }],
  },
  {
    title: "Event loop delay, p99",
    format: durationText,
    lines: [{ label: "p99", of: ({ event_loop_p99_ms }) => event_loop_p99_ms }],
  },
  {
    title: "Memory",
    // In MB, so that the ticks of the axis are round.
    format: (value) => `${rateText(value)} MB`,
    lines: [{ label: "memory", of: ({ rss_bytes }) => rss_bytes / 2 ** 20 }],
  },
  {
    title: "Error responses per second",
    format: rateText,
    lines: [{ label: "errors", colour: "failed", of: ({ errors_per_s }) => errors_per_s }],
  },
];

/** The load of the server over the last hour. */
export function Load() {
  const { samples, error } = useOverview();
  const times = useMemo(() => samples.map((sample) => sample.at), [samples]);
  if (samples.length === 0)
    return error ? <Failure error={error} /> : <Loading label="Waiting for the first sample…" />;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and contains nothing else that takes the focus.
    <section className="load" aria-label="Load" tabIndex={0}>
      {PLOTS.map((plot) => (
        <PlotView key={plot.title} plot={plot} times={times} samples={samples} />
      ))}
      <p className="quiet load-note">
        The last hour of this server, in steps of ten seconds, and in seconds since this page was opened.
      </p>
    </section>
  );
}

interface PlotViewProps {
  readonly plot: Plot;
  readonly times: readonly number[];
  readonly samples: readonly Sample[];
}

function PlotView({ plot, times, samples }: PlotViewProps) {
  const series = useMemo(
    () => plot.lines.map(({ of, ...line }) => ({ ...line, values: samples.map(of) })),
    [plot, samples],
  );
  return (
    <section className="card load-plot">
      <header className="load-head">
        <h2>{plot.title}</h2>
        {plot.lines.length === 1 && <span>{plot.format(series[0]?.values.at(-1) ?? 0)}</span>}
      </header>
      <Chart label={plot.title} times={times} series={series} format={plot.format} />
    </section>
  );
}
