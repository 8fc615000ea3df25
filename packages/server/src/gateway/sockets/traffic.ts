import { ERRORS, type ErrorCode } from "@khala/contracts";
import type { ErrorCountJson, SocketCloseJson } from "@khala/contracts/ops/v1";
import { type Clock, isoTime } from "../../kit/clock.ts";

/** Totals of what was written to sockets; every outbox adds to it. */
export interface Written {
  messages: number;
  bytes: number;
}

/** Counters of the gateway since the start. */
export interface Traffic {
  readonly written: Written;
  /** Counts a socket; `closed` takes it back. */
  opened(): void;
  /** Counts something that was answered with an error. */
  refused(code: ErrorCode): void;
  /** Remembers the end of a socket. */
  closed(org: string, close: Omit<SocketCloseJson, "at">): void;
  /** The last closes of an org, newest first. */
  closes(org: string): SocketCloseJson[];
  /** By code, the most frequent first. */
  errors(): ErrorCountJson[];
  totals(): {
    readonly sockets: number;
    readonly errors: number;
    readonly refused: number;
    readonly slowCloses: number;
  };
}

/** Closes that are remembered of each org, and orgs of which there are any. */
const CLOSES = 200;
const ORGS = 1_000;
const MAX_REASON = 123;

/** Opens the count. */
export function openTraffic(clock: Clock): Traffic {
  const errors = new Map<ErrorCode, { count: number; at: number }>();
  const closes = new Map<string, SocketCloseJson[]>();
  let sockets = 0;
  let slowCloses = 0;

  return {
    written: { messages: 0, bytes: 0 },
    opened() {
      sockets++;
    },
    refused(code) {
      const known = errors.get(code);
      const at = clock.now();
      if (!known) errors.set(code, { count: 1, at });
      else {
        known.count++;
        known.at = at;
      }
    },
    closed(org, { reason = "", ...close }) {
      sockets--;
      if (reason === "slow_consumer") slowCloses++;
      const list = closes.get(org) ?? [];
      closes.delete(org);
      closes.set(org, list);
      list.push({ at: isoTime(clock.now()), ...close, reason: reason.slice(0, MAX_REASON) });
      if (list.length > CLOSES) list.shift();
      if (closes.size > ORGS) closes.delete(closes.keys().next().value!);
    },
    closes: (org) => (closes.get(org) ?? []).toReversed(),
    errors: () =>
      [...errors]
        .map(([code, { count, at }]) => ({ code, count, last_at: new Date(at).toISOString() }))
        .sort((a, b) => b.count - a.count),
    totals() {
      const totals = { sockets, errors: 0, refused: 0, slowCloses };
      for (const [code, { count }] of errors) {
        totals.errors += count;
        if (isTurnedAway(code)) totals.refused += count;
      }
      return totals;
    },
  };
}

/** Denied, or over a limit. */
function isTurnedAway(code: ErrorCode): boolean {
  return [401, 403, 429, 503].includes(ERRORS[code].status);
}
