import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;
let seconds = Math.floor(Date.now() / 1000);

function tick(): void {
  seconds = Math.floor(Date.now() / 1000);
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  if (timer === undefined) {
    seconds = Math.floor(Date.now() / 1000);
    timer = setInterval(tick, 1000);
  }
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0 || timer === undefined) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The time in milliseconds, to the second: one timer for all who look. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => seconds) * 1000;
}

/** The words of a time, as `Ago` shows them: renders again only when they change. */
export function useAgoText(at: number): string {
  return useSyncExternalStore(subscribe, () => agoText(at, seconds * 1000));
}

/** How long ago, in one short word. */
function agoText(at: number, now: number): string {
  const s = Math.round((now - at) / 1000);
  const size = Math.abs(s);
  const text =
    size < 60
      ? `${size}s`
      : size < 3600
        ? `${Math.floor(size / 60)}m`
        : size < 86_400
          ? `${Math.floor(size / 3600)}h`
          : `${Math.floor(size / 86_400)}d`;
  // The server's clock and ours are never quite the same.
  if (s < 2 && s > -5) return "now";
  return s < 0 ? `in ${text}` : `${text} ago`;
}

// Made once: making one costs a hundred times what writing a time with it does, and tables write one in every row.
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" } as const;
const TIME_OF_DAY = new Intl.DateTimeFormat("en-GB", TIME);
const EXACT_TIME = new Intl.DateTimeFormat("en-GB", {
  year: "numeric",
  month: "short",
  day: "numeric",
  ...TIME,
  fractionalSecondDigits: 3,
  timeZoneName: "short",
});

/** The exact time, in the reader's zone. */
export function exactTime(at: number): string {
  return EXACT_TIME.format(at);
}

/** The time of day alone, for "offline since". */
export function timeOfDay(at: number): string {
  return TIME_OF_DAY.format(at);
}
