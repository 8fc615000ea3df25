import { useMemo } from "react";
import { useOverview } from "../home/overview.tsx";
import type { Overview } from "../home/overview_read.ts";
import { Chart, type Series } from "../parts/chart.tsx";
import { durationText, rateText } from "../parts/numbers.ts";
import { Failure, Loading } from "../parts/states.tsx";
import { opsWords } from "../strings/operations.ts";

const words = opsWords.load;

interface Plot {
  readonly title: string;
  readonly format: (value: number) => string;
  readonly lines: readonly (Omit<Series, "values"> & { readonly of: (overview: Overview) => number })[];
}

const PLOTS: readonly Plot[] = [
  {
    title: words.messages,
    format: rateText,
    lines: [{ label: words.series.messages, of: ({ gateway }) => gateway.messagesPerSecond }],
  },
  {
    title: words.work,
    format: rateText,
    lines: [
      { label: words.series.updates, of: ({ sync }) => sync.perSecond },
      { label: words.series.events, colour: "working", of: ({ conversations }) => conversations.perSecond },
      { label: words.series.tasks, colour: "ok", of: ({ blackboard }) => blackboard.perSecond },
    ],
  },
  {
    title: words.cpu,
    format: (value) => `${rateText(value)} %`,
    lines: [{ label: words.series.cpu, of: ({ process }) => process.cpuPercent }],
  },
  {
    title: words.loop,
    format: durationText,
    lines: [{ label: words.series.loop, of: ({ process }) => process.loopMs }],
  },
  {
    title: words.memory,
    // In MB, so that the marks of the axis are round.
    format: (value) => `${rateText(value)} MB`,
    lines: [{ label: words.series.memory, of: ({ process }) => process.rssBytes / 2 ** 20 }],
  },
  {
    title: words.errors,
    format: rateText,
    lines: [{ label: words.series.errors, colour: "failed", of: ({ gateway }) => gateway.errorsPerSecond }],
  },
];

/** The load of the server over the last minutes. */
export function Load() {
  const { samples, error } = useOverview();
  const times = useMemo(() => samples.map((sample) => sample.at), [samples]);
  if (samples.length === 0) return error ? <Failure error={error} /> : <Loading label={words.waiting} />;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has nothing else that takes the focus.
    <section className="load" aria-label={opsWords.tab.load} tabIndex={0}>
      {PLOTS.map((plot) => (
        <PlotView key={plot.title} plot={plot} times={times} samples={samples} />
      ))}
      <p className="quiet load-note">{words.note}</p>
    </section>
  );
}

interface PlotViewProps {
  readonly plot: Plot;
  readonly times: readonly number[];
  readonly samples: readonly Overview[];
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
