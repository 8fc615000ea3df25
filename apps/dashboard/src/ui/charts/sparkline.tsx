import { memo } from "react";
import { rateText } from "../format/numbers.ts";

export interface SparklineProps {
  /** For screen readers. */
  readonly label: string;
  /** Oldest first. */
  readonly values: readonly number[];
  readonly width?: number;
  readonly height?: number;
}

/** A small line chart without axes. */
export const Sparkline = memo(function Sparkline({ label, values, width = 96, height = 24 }: SparklineProps) {
  const low = Math.min(...values, 0);
  const high = Math.max(...values, 1);
  const step = values.length > 1 ? width / (values.length - 1) : width;
  const y = (value: number) => height - 1.5 - ((value - low) / (high - low)) * (height - 3);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${y(value).toFixed(1)}`);
  const text = `${label}: now ${rateText(values.at(-1) ?? 0)}, between ${rateText(low)} and ${rateText(high)}`;
  return (
    <svg className="sparkline" viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img">
      <title>{text}</title>
      {points.length > 1 && (
        <>
          <polygon points={`0,${height} ${points.join(" ")} ${width},${height}`} />
          <polyline points={points.join(" ")} />
        </>
      )}
    </svg>
  );
});
