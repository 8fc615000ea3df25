import { monitorEventLoopDelay } from "node:perf_hooks";
import type { Clock } from "../../kit/clock.ts";
import { rounded } from "./rates.ts";

/** How the process is doing. */
export interface ProcessFigures {
  readonly rss_bytes: number;
  readonly cpu_percent: number;
  readonly event_loop_p99_ms: number;
}

/** Measures the process between two samples. */
export interface ProcessMonitor {
  sample(): ProcessFigures;
  stop(): void;
}

export interface ProcessMonitorOptions {
  /** The interval at which the event loop is sampled. It costs a timer each time. */
  readonly resolutionMs: number;
  /** Without a sample for this long, the event loop is left alone. */
  readonly restAfterMs: number;
}

/** Opens the monitor. */
export function openProcessMonitor(
  clock: Clock,
  { resolutionMs, restAfterMs }: ProcessMonitorOptions,
): ProcessMonitor {
  const delay = monitorEventLoopDelay({ resolution: resolutionMs });
  let at = clock.now();
  let used = process.cpuUsage();
  let cancel = () => {};
  return {
    sample() {
      const now = clock.now();
      const { user, system } = process.cpuUsage(used);
      const elapsedMs = Math.max(1, now - at);
      at = now;
      used = process.cpuUsage();
      // The histogram holds the time between two ticks.
      const late = delay.count > 0 ? delay.percentile(99) / 1e6 - resolutionMs : 0;
      delay.reset();
      delay.enable();
      cancel();
      cancel = clock.after(restAfterMs, () => delay.disable());
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
