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

/** The time in milliseconds, to the second. All callers share one timer. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => seconds) * 1000;
}

/** A relative time, with the exact one on hover. */
export function Ago({ at }: { readonly at: string | number | undefined }) {
  const ms = typeof at === "string" ? Date.parse(at) : at;
  if (ms === undefined || Number.isNaN(ms)) return <span className="quiet">–</span>;
  return <ValidAgo ms={ms} />;
}

function ValidAgo({ ms }: { readonly ms: number }) {
  // Renders again only when the text changes.
  const text = useSyncExternalStore(subscribe, () => agoText(ms, seconds * 1000));
  return (
    <time className="ago" dateTime={new Date(ms).toISOString()} title={exactTime(ms)}>
      {text}
    </time>
  );
}

function agoText(at: number, now: number): string {
  const s = Math.round((now - at) / 1000);
  const size = Math.abs(s);
  // The clocks of the server and the browser differ a little.
  if (s < 2 && s > -5) return "now";
  const text =
    size < 60
      ? `${size}s`
      : size < 3600
        ? `${Math.floor(size / 60)}m`
        : size < 86_400
          ? `${Math.floor(size / 3600)}h`
          : `${Math.floor(size / 86_400)}d`;
  return s < 0 ? `in ${text}` : `${text} ago`;
}

// Made once: creating a format costs a hundred times what using it does, and tables use one in every row.
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
