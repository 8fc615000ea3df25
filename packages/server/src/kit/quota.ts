import { KhalaError } from "@khala/contracts";
import type { Meter } from "@opentelemetry/api";
import type { Context } from "./context.ts";

export interface QuotaOptions {
  /** Appears in errors and in the metric, such as `chat_runs`. */
  readonly name: string;
  /** What is counted, such as "live runs on this server". */
  readonly of: string;
}

/** Limits how often each key, such as an org, does something. */
export interface RateQuota {
  /** Takes one; throws limit_exceeded, with the time until there is one again. */
  take(key: string): void;
}

/** Limits how many things each key, such as an org, has at the same time. */
export interface ConcurrencyQuota {
  /** Takes a place until the returned function is called; throws limit_exceeded when there is none. */
  acquire(key: string): () => void;
  /** Takes a place even beyond the limit, for what has to be done anyway. */
  acquireAnyway(key: string): () => void;
  /** Whether the key has a place left. */
  hasRoom(key: string): boolean;
  /** The keys without a place left. */
  full(): string[];
}

/** A bucket holds as much as this time brings. */
const BURST_MS = 1_000;
const ROUNDING_MS = 0.001;
const RETRY_MS = 1_000;
const MAX_KEYS = 10_000;

/** Opens a rate limit: a token bucket per key, which holds one second's worth. */
export function openRateQuota(
  { clock, telemetry }: Pick<Context, "clock" | "telemetry">,
  options: QuotaOptions & {
    readonly perSecond: number;
    /** Beyond this many keys, those that were used least recently start with a full bucket again. */
    readonly maxKeys?: number;
  },
): RateQuota {
  const { perSecond, maxKeys = MAX_KEYS } = options;
  const reject = rejections(telemetry.meter, options, perSecond);
  const interval = BURST_MS / perSecond;
  /** When the bucket of a key is full again; least recently used first. */
  const fullAt = new Map<string, number>();
  return {
    take(key) {
      const now = clock.now();
      const full = Math.max(now, fullAt.get(key) ?? now);
      const waitMs = full + interval - now - BURST_MS;
      const taken = waitMs < ROUNDING_MS;
      fullAt.delete(key);
      fullAt.set(key, taken ? full + interval : full);
      if (fullAt.size > maxKeys) fullAt.delete(fullAt.keys().next().value!);
      if (!taken) throw reject(Math.ceil(waitMs));
    },
  };
}

/** Opens a limit of what a key has at the same time. */
export function openConcurrencyQuota(
  { telemetry }: Pick<Context, "telemetry">,
  options: QuotaOptions & { readonly limit: number },
): ConcurrencyQuota {
  const { limit } = options;
  const reject = rejections(telemetry.meter, options, limit);
  const counts = new Map<string, number>();
  const count = (key: string) => counts.get(key) ?? 0;

  function acquireAnyway(key: string): () => void {
    counts.set(key, count(key) + 1);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      const left = count(key) - 1;
      if (left > 0) counts.set(key, left);
      else counts.delete(key);
    };
  }

  return {
    acquire(key) {
      if (count(key) >= limit) throw reject(RETRY_MS);
      return acquireAnyway(key);
    },
    acquireAnyway,
    hasRoom: (key) => count(key) < limit,
    full: () => [...counts].filter(([, held]) => held >= limit).map(([key]) => key),
  };
}

/** Counts a rejection and makes its error. */
function rejections(
  meter: Meter,
  { name, of }: QuotaOptions,
  limit: number,
): (retryAfterMs: number) => KhalaError {
  const counter = meter.createCounter("khala_quota_rejections_total", {
    description: "Requests refused because an org has reached a quota, by quota",
  });
  // Alerts see the first rejection as an increase only if the series starts at zero.
  counter.add(0, { quota: name });
  return (retry_after_ms) => {
    counter.add(1, { quota: name });
    const message = `Your org has reached its quota ${name}: ${limit} ${of}. Try again in a moment.`;
    return new KhalaError("limit_exceeded", message, { retry_after_ms, field: name });
  };
}
