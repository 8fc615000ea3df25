/** A figure over time: minutes since the start, and its value. */
export interface Series {
  readonly name: string;
  readonly points: readonly (readonly [minute: number, value: number])[];
}

const WIDTH = 360;
const HEIGHT = 150;
const MARGIN = { left: 64, top: 26, right: 14, bottom: 22 };
const COLUMNS = 2;

/** One small chart per series, each from zero, as an SVG that needs nothing else. */
export function soakPlot(series: readonly Series[]): string {
  const rows = Math.ceil(series.length / COLUMNS);
  const charts = series.map((each, i) => {
    const x = (i % COLUMNS) * WIDTH;
    const y = Math.floor(i / COLUMNS) * HEIGHT;
    return `<g transform="translate(${x} ${y})">${chart(each)}</g>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH * COLUMNS} ${HEIGHT * rows}" font-family="sans-serif" font-size="11">
<rect width="100%" height="100%" fill="#fff"/>
${charts.join("\n")}
</svg>
`;
}

function chart({ name, points }: Series): string {
  const right = WIDTH - MARGIN.right;
  const bottom = HEIGHT - MARGIN.bottom;
  const lastMinute = Math.max(...points.map(([minute]) => minute), 1e-9);
  const top = Math.max(...points.map(([, value]) => value), 1e-9);
  const at = ([minute, value]: readonly [number, number]) => {
    const x = MARGIN.left + (minute / lastMinute) * (right - MARGIN.left);
    const y = bottom - (value / top) * (bottom - MARGIN.top);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  };
  const label = (value: number) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
  return [
    `<text x="${MARGIN.left}" y="16" font-weight="600">${name}</text>`,
    `<path d="M${MARGIN.left},${MARGIN.top} V${bottom} H${right}" fill="none" stroke="#999"/>`,
    `<text x="${MARGIN.left - 6}" y="${MARGIN.top + 4}" text-anchor="end">${label(top)}</text>`,
    `<text x="${MARGIN.left - 6}" y="${bottom}" text-anchor="end">0</text>`,
    `<text x="${right}" y="${bottom + 14}" text-anchor="end">${label(lastMinute)} min</text>`,
    `<polyline points="${points.map(at).join(" ")}" fill="none" stroke="#2563eb" stroke-width="1.5"/>`,
  ].join("");
}
