import { exactTime, useAgoText } from "./clock.ts";

/** A time, relative; the exact one is shown on hover. */
export function Ago({ at }: { readonly at: string | number | undefined }) {
  const ms = typeof at === "string" ? Date.parse(at) : at;
  if (ms === undefined || Number.isNaN(ms)) return <span className="quiet">–</span>;
  return <KnownAgo ms={ms} />;
}

function KnownAgo({ ms }: { readonly ms: number }) {
  const text = useAgoText(ms);
  return (
    <time className="ago" dateTime={new Date(ms).toISOString()} title={exactTime(ms)}>
      {text}
    </time>
  );
}
