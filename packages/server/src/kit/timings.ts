import { type Attributes, ValueType } from "@opentelemetry/api";
import { AggregationTemporality, DataPointType, type HistogramMetricData } from "@opentelemetry/sdk-metrics";

/** Milliseconds from "in memory" to "something is wrong". */
export const BUCKETS = [
  0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000,
];

/** One series of a histogram. */
export class Timing {
  readonly labels: Attributes;
  readonly counts: number[] = new Array(BUCKETS.length + 1).fill(0);
  count = 0;
  sum = 0;

  constructor(labels: Attributes) {
    this.labels = labels;
  }

  record(ms: number): void {
    let bucket = 0;
    while (bucket < BUCKETS.length && ms > BUCKETS[bucket]!) bucket++;
    this.counts[bucket]!++;
    this.count++;
    this.sum += ms;
  }
}

/**
 * A histogram of milliseconds for what happens all the time: its series are at hand, where an instrument of the SDK would
 * look for them by their labels at every record.
 */
export class Timings {
  readonly #series: Timing[] = [];
  readonly #name: string;
  readonly #description: string;

  constructor(name: string, description: string) {
    this.#name = name;
    this.#description = description;
  }

  /** Makes the series of these labels. */
  series(labels: Attributes): Timing {
    const timing = new Timing(labels);
    this.#series.push(timing);
    return timing;
  }

  /** What it says now, as the SDK would. */
  data(): HistogramMetricData {
    return {
      descriptor: {
        name: this.#name,
        description: this.#description,
        unit: "ms",
        valueType: ValueType.DOUBLE,
      },
      aggregationTemporality: AggregationTemporality.CUMULATIVE,
      dataPointType: DataPointType.HISTOGRAM,
      dataPoints: this.#series
        .filter(({ count }) => count > 0)
        .map(({ labels, counts, count, sum }) => ({
          // The text of a scrape has no times.
          startTime: [0, 0],
          endTime: [0, 0],
          attributes: labels,
          value: { buckets: { boundaries: BUCKETS, counts: [...counts] }, count, sum },
        })),
    };
  }
}
