import { DataPointType, type ResourceMetrics } from "@opentelemetry/sdk-metrics";

/** What counters and gauges said at one moment. */
export interface Figures {
  /** The sum over all series of a metric that have these labels; 0 for one that has none. */
  sum(name: string, labels?: Readonly<Record<string, string>>): number;
}

/** Reads figures out of a collection. Histograms are left out. */
export function figuresOf({ scopeMetrics }: ResourceMetrics): Figures {
  const metrics = new Map(
    scopeMetrics.flatMap(({ metrics: all }) => all.map((each) => [each.descriptor.name, each])),
  );
  return {
    sum(name, labels = {}) {
      const metric = metrics.get(name);
      if (metric?.dataPointType !== DataPointType.SUM && metric?.dataPointType !== DataPointType.GAUGE)
        return 0;
      const wanted = Object.entries(labels);
      let sum = 0;
      for (const { attributes, value } of metric.dataPoints)
        if (wanted.every(([label, text]) => attributes[label] === text)) sum += value;
      return sum;
    },
  };
}
