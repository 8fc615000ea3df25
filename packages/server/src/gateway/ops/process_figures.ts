import { monitorEventLoopDelay } from "node:perf_hooks";
import type { Clock } from "../../kit/clock.ts";

/** How the process is doing. */
export interface ProcessFigures {
  readonly rss_bytes: number;
  readonly cpu_percent: number;
  readonly event_loop_p99_ms: number;
}

/** Measures the process from one look to the next. */
export interface ProcessMeter {
  look(): ProcessFigures;
  stop(): void;
}

const RESOLUTION_MS = 20;
/** The event loop is watched by a timer, which would keep a server busy that nobody looks at. */
const WATCHED_MS = 10_000;

/** Opens the meter. */
export function openProcessMeter(clock: Clock): ProcessMeter {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  let at = clock.now();
  let used = process.cpuUsage();
  let cancel = () => {};
  return {
    look() {
      const now = clock.now();
      const { user, system } = process.cpuUsage(used);
      const elapsedMs = Math.max(1, now - at);
      at = now;
      used = process.cpuUsage();
      // What it measures is the time between two of its ticks.
      const late = delay.count > 0 ? delay.percentile(99) / 1e6 - RESOLUTION_MS : 0;
      delay.reset();
      delay.enable();
      cancel();
      cancel = clock.after(WATCHED_MS, () => delay.disable());
      return {
        rss_bytes: process.memoryUsage.rss(),
        cpu_percent: rounded((user + system) / 10 / elapsedMs),
        event_loop_p99_ms: rounded(Math.max(0, late)),
      };
    },
    stop() {
      cancel();
      delay.disable();
    },
  };
}

/** As much of a number as anybody reads. */
export function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}
