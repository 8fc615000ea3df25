import type { Attributes, Meter } from "@opentelemetry/api";

/** One series of a counter. Whoever counts adds to it. */
export interface Series {
  readonly labels: Attributes;
  count: number;
}

/** Makes the series of a counter for what happens all the time: it is read at a scrape, so that counting is an addition. */
export type Tally = (labels: Attributes) => Series;

/** Opens a counter. */
export function openTally(meter: Meter, name: string, description: string): Tally {
  const all: Series[] = [];
  meter.createObservableCounter(name, { description }).addCallback((result) => {
    for (const { count, labels } of all) result.observe(count, labels);
  });
  return (labels) => {
    const series = { labels, count: 0 };
    all.push(series);
    return series;
  };
}

/** What is there under a key, made when it is asked for the first time. */
export function gotten<K, V>(map: Map<K, V>, key: K, make: (key: K) => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make(key);
    map.set(key, value);
  }
  return value;
}
