import { KhalaError } from "@khala/contracts";
import type { Meter } from "@opentelemetry/api";
import type { Clock } from "./clock.ts";

export interface QuotaOptions {
  /** Appears in errors and in the metric, such as `chat_runs`. */
  readonly name: string;
  /** The counted thing, such as "live runs on this server". */
  readonly of: string;
}

/** A quota that operators see. */
export interface Quota extends QuotaOptions {
  /** 0 for none. */
  readonly limit: number;
  /** Undefined where it is not known. */
  inUse(org: string): number | undefined | Promise<number | undefined>;
  /** The orgs that use something of it, at most `limit`. */
  orgs(limit: number): readonly string[] | Promise<readonly string[]>;
}

/** An org's use of a quota. */
export interface QuotaUse extends QuotaOptions {
  readonly org: string;
  readonly limit: number;
  readonly inUse: number | undefined;
  /** On this server, since it started. */
  readonly rejected: number;
}

/** The quotas of a server. */
export interface Quotas {
  /** Adds a quota. The returned function counts a rejection and makes its error. */
  add(quota: Quota): (org: string, retryAfterMs: number, advice?: string) => KhalaError;
  /** An org's use of every quota. */
  of(org: string): Promise<QuotaUse[]>;
  /** The use of all orgs, without quotas that an org does not use; at most `limit` orgs of each quota. */
  ofAll(limit: number): Promise<QuotaUse[]>;
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

/** Opens the register of a server's quotas. */
export function openQuotas(meter: Meter): Quotas {
  const counter = meter.createCounter("khala_quota_rejections_total", {
    description: "Requests refused because an org has reached a quota, by quota",
  });
  const added = new Map<string, { readonly quota: Quota; readonly rejected: Map<string, number> }>();

  async function use(name: string, org: string): Promise<QuotaUse> {
    const { quota, rejected } = added.get(name)!;
    const { of, limit } = quota;
    return { org, name, of, limit, inUse: await quota.inUse(org), rejected: rejected.get(org) ?? 0 };
  }

  return {
    add(quota) {
      const { name, of, limit } = quota;
      /** Least recently refused first. */
      const rejected = new Map<string, number>();
      added.set(name, { quota, rejected });
      // Alerts see the first rejection as an increase only if the series starts at zero.
      counter.add(0, { quota: name });
      return (org, retry_after_ms, advice = "Try again in a moment.") => {
        counter.add(1, { quota: name });
        const before = rejected.get(org) ?? 0;
        rejected.delete(org);
        rejected.set(org, before + 1);
        if (rejected.size > MAX_KEYS) rejected.delete(rejected.keys().next().value!);
        const message = `Your org has reached its quota ${name}: ${limit} ${of}. ${advice}`;
        return new KhalaError("limit_exceeded", message, { retry_after_ms, field: name });
      };
    },
    of: (org) => Promise.all([...added.keys()].map((name) => use(name, org))),
    async ofAll(limit) {
      const uses: QuotaUse[] = [];
      for (const [name, { quota, rejected }] of added) {
        const orgs = new Set([...[...rejected.keys()].reverse(), ...(await quota.orgs(limit))]);
        for (const org of [...orgs].slice(0, limit)) uses.push(await use(name, org));
      }
      return uses.filter(({ inUse = 0, rejected }) => inUse > 0 || rejected > 0);
    },
  };
}

/** Opens a rate limit: a token bucket per key, which holds one second's worth. */
export function openRateQuota(
  { clock, quotas }: { readonly clock: Clock; readonly quotas: Quotas },
  options: QuotaOptions & {
    readonly perSecond: number;
    /** Beyond this many keys, those that were used least recently start with a full bucket again. */
    readonly maxKeys?: number;
  },
): RateQuota {
  const { perSecond, maxKeys = MAX_KEYS } = options;
  const interval = BURST_MS / perSecond;
  /** When the bucket of a key is full again; least recently used first. */
  const fullAt = new Map<string, number>();
  const reject = quotas.add({
    ...options,
    limit: perSecond,
    inUse: (key) => Math.max(0, Math.round(((fullAt.get(key) ?? 0) - clock.now()) / interval)),
    orgs: (limit) => [...fullAt.keys()].slice(-limit),
  });
  return {
    take(key) {
      const now = clock.now();
      const full = Math.max(now, fullAt.get(key) ?? now);
      const waitMs = full + interval - now - BURST_MS;
      const taken = waitMs < ROUNDING_MS;
      fullAt.delete(key);
      fullAt.set(key, taken ? full + interval : full);
      if (fullAt.size > maxKeys) fullAt.delete(fullAt.keys().next().value!);
      if (!taken) throw reject(key, Math.ceil(waitMs));
    },
  };
}

/** Opens a limit of what a key has at the same time. */
export function openConcurrencyQuota(
  { quotas }: { readonly quotas: Quotas },
  options: QuotaOptions & { readonly limit: number },
): ConcurrencyQuota {
  const { limit } = options;
  const counts = new Map<string, number>();
  const count = (key: string) => counts.get(key) ?? 0;
  const reject = quotas.add({ ...options, inUse: count, orgs: (max) => [...counts.keys()].slice(0, max) });

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
      if (count(key) >= limit) throw reject(key, RETRY_MS);
      return acquireAnyway(key);
    },
    acquireAnyway,
    hasRoom: (key) => count(key) < limit,
    full: () => [...counts].filter(([, held]) => held >= limit).map(([key]) => key),
  };
}
