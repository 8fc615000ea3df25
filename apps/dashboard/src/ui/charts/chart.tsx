import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { State } from "../feedback/state_badge.tsx";
import { timeOfDay } from "../format/ago.tsx";

/** Tick distances on the time axis. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
/** Tick distances on the value axis: none that is rounded when formatted, as a quarter would be. */
const STEPS = Array.from({ length: 14 }, (_, power) =>
  [1, 2, 5].map((digit) => digit * 10 ** (power - 1)),
).flat();

export interface Series {
  readonly label: string;
  /** As many as there are times; null where unknown. */
  readonly values: readonly (number | null)[];
  /** A state's colour, or the accent. */
  readonly colour?: State | "accent" | "text-3";
}

export interface ChartProps {
  /** For screen readers. */
  readonly label: string;
  /** Milliseconds since 1970, ascending. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly height?: number;
  readonly format?: (value: number) => string;
}

/** A line chart over time. It is redrawn when the data change, and created again for other series or another theme. */
export function Chart({ label, times, series, height = 160, format = String }: ChartProps) {
  const holder = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot>(undefined);
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const shape = series.map((one) => `${one.label}:${one.colour ?? ""}`).join("|");
  const latest = useRef({ series, format });
  latest.current = { series, format };

  // biome-ignore lint/correctness/useExhaustiveDependencies: created again for another shape or theme alone; data follow below.
  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const colour = (name: string) => () => getComputedStyle(element).getPropertyValue(`--${name}`).trim();
    const axis: uPlot.Axis = {
      stroke: colour("text-3"),
      font: "11px system-ui, sans-serif",
      grid: { stroke: colour("line"), width: 1 },
      ticks: { show: false },
    };
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height,
        cursor: { y: false, points: { size: 6 } },
        padding: [8, 12, 0, 0],
        legend: { live: true, show: latest.current.series.length > 1 },
        axes: [
          {
            ...axis,
            size: 28,
            space: 90,
            incrs: SECONDS,
            values: (_, marks) => marks.map((mark) => timeOfDay(mark * 1000)),
          },
          {
            ...axis,
            size: 56,
            incrs: STEPS,
            values: (_, marks) => marks.map((mark) => latest.current.format(mark)),
          },
        ],
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.1)] } },
        series: [
          { label: "Time", value: (_, at) => (at === null ? "" : timeOfDay(at * 1000)) },
          ...latest.current.series.map((one) => ({
            label: one.label,
            stroke: colour(one.colour === undefined || one.colour === "accent" ? "accent-fill" : one.colour),
            width: 1.5,
            points: { show: false },
            // Without a pointer on the chart there is no index: the legend shows the newest value.
            value(plot: uPlot, pointed: number | null, series: number, index: number | null) {
              const value = index === null ? plot.data[series]?.at(-1) : pointed;
              return typeof value === "number" ? latest.current.format(value) : "–";
            },
          })),
        ],
      },
      [[], ...latest.current.series.map(() => [])],
      element,
    );
    chart.current = plot;
    const size = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    size.observe(element);
    const themes = new MutationObserver(() => setTheme(document.documentElement.dataset.theme));
    themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      size.disconnect();
      themes.disconnect();
      plot.destroy();
    };
  }, [shape, height, theme]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new chart needs the data again.
  useEffect(() => {
    chart.current?.setData([times.map((ms) => ms / 1000), ...series.map((one) => [...one.values])]);
  }, [times, series, shape, height, theme]);

  return <div ref={holder} className="chart" role="img" aria-label={label} />;
}
