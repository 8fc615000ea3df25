import type { Effort } from "./plane.ts";
import { watchStolen } from "./proc.ts";

/** What was measured, and the share of the CPU that others on the same host took meanwhile. */
export interface Window<T> {
  readonly value: T;
  readonly stolen: number;
}

const QUIET = 0.05;
const MOST_TIMES = 4;
/** After so long no more are added, unless told otherwise: some take half a minute each. */
const LONG_MS = 60_000;

/**
 * Measures until as many windows as there are rounds had the machine almost to themselves, or four times as many were tried, or
 * it takes too long, and answers those that had the most of it. What came out has no say in which of them count.
 */
export async function quietest<T>(
  { rounds, quick }: Effort,
  measure: () => Promise<T>,
  { longMs = LONG_MS, watch = watchStolen, now = () => performance.now() } = {},
): Promise<Window<T>[]> {
  const windows: Window<T>[] = [];
  const most = quick ? rounds : rounds * MOST_TIMES;
  const began = now();
  let quiet = 0;
  const isEnough = () => windows.length >= rounds && now() - began > longMs;
  while (quiet < rounds && windows.length < most && !isEnough()) {
    const stolen = watch();
    const value = await measure();
    windows.push({ value, stolen: stolen() });
    if (windows.at(-1)!.stolen <= QUIET) quiet++;
  }
  return windows.sort((a, b) => a.stolen - b.stolen).slice(0, rounds);
}

/** The most that others took of what counts. */
export function mostStolen(...series: readonly (readonly Window<unknown>[])[]): number {
  return Math.max(0, ...series.flat().map(({ stolen }) => stolen));
}
