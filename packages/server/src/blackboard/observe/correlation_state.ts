import type { CorrelationCountedJson, CorrelationWaitsJson } from "@khala/contracts/blackboard/v1";
import type { Database } from "../../database/database.ts";
import type { Board } from "../board.ts";
import type { CorrelationCounts, CorrelationName } from "../model/counts.ts";
import { subjectKey } from "./progress_state.ts";

/** Tasks and artifacts of a correlation that wait outside of the queue. */
export interface WaitingCounts {
  readonly approvals: number;
  readonly gathering: number;
  readonly scheduled: number;
  readonly paused: number;
  /** Sent back after a pause, and not yet received. */
  readonly returning: number;
  /** In the outbox. */
  readonly sending: number;
}

const NOTHING: WaitingCounts = {
  approvals: 0,
  gathering: 0,
  scheduled: 0,
  paused: 0,
  returning: 0,
  sending: 0,
};
const UNKNOWN = { artifacts: 0, open: 0, retrying: 0, done: 0, dead: 0 };

/** Orgs, correlations. */
const OFF_FLOW = `
SELECT u.n::int AS n, a.approvals, m.gathering, o.scheduled, o.sending, p.paused, p.returning
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(org, id, n)
CROSS JOIN LATERAL (
  SELECT count(*) AS approvals FROM runtime.board_approvals a
  WHERE a.correlation_id = u.id AND a.org_id = u.org AND a.state = 'pending' OFFSET 0
) a
CROSS JOIN LATERAL (
  SELECT count(*) AS gathering FROM runtime.board_members m WHERE m.correlation_id = u.id AND m.org_id = u.org OFFSET 0
) m
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE o.not_before IS NOT NULL) AS scheduled,
    count(*) FILTER (WHERE o.not_before IS NULL) AS sending
  FROM runtime.board_outbox o WHERE o.correlation_id = u.id AND o.org_id = u.org OFFSET 0
) o
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE p.sent < c.since) AS paused, count(*) FILTER (WHERE p.sent >= c.since) AS returning
  FROM runtime.board_controls c
  CROSS JOIN LATERAL (
    SELECT p.sent FROM runtime.board_parked p WHERE p.correlation_id = u.id AND p.org_id = u.org OFFSET 0
  ) p
  WHERE c.kind = 'pause' AND c.name = u.id AND c.org_id = u.org OFFSET 0
) p`;

/** The waiting counts of each correlation, in the same order. */
export async function waitingCounts(
  database: Database,
  names: readonly CorrelationName[],
): Promise<WaitingCounts[]> {
  const found: WaitingCounts[] = names.map(() => NOTHING);
  if (names.length === 0) return found;
  const rows = await database.query<{ n: number } & Record<keyof WaitingCounts, bigint>>({
    name: "board_off_flow",
    text: OFF_FLOW,
    values: [names.map(({ org }) => org), names.map(({ name }) => name)],
  });
  for (const { n, approvals, gathering, scheduled, paused, returning, sending } of rows)
    found[n - 1] = {
      approvals: Number(approvals),
      gathering: Number(gathering),
      scheduled: Number(scheduled),
      paused: Number(paused),
      returning: Number(returning),
      sending: Number(sending),
    };
  return found;
}

/** The backend's counts of a correlation, and its waiting counts. */
export interface CorrelationReading {
  readonly count: CorrelationCounts | undefined;
  readonly off: WaitingCounts;
}

/**
 * Reads the state of correlations, in the order of their names. A task that leaves or re-enters the queue is counted in
 * both places for a moment. The two are read one after the other, so a task that re-enters in between is in neither:
 * the backend is therefore read again for those that seem to be done.
 */
export async function readCorrelations(
  board: Pick<Board, "correlations">,
  offFlowOf: (names: readonly CorrelationName[]) => Promise<readonly WaitingCounts[]>,
  names: readonly CorrelationName[],
): Promise<CorrelationReading[]> {
  const before = byName(await board.correlations(names));
  const off = await offFlowOf(names);
  const over = names.filter(
    ({ org, name }, i) =>
      !before.get(subjectKey(org, name))?.open && Object.values(off[i]!).every((n) => n === 0),
  );
  const after = byName(over.length > 0 ? await board.correlations(over) : []);
  return names.map(({ org, name }, i) => {
    const key = subjectKey(org, name);
    return { count: after.get(key) ?? before.get(key), off: off[i]! };
  });
}

function byName(counts: readonly CorrelationCounts[]): Map<string, CorrelationCounts> {
  return new Map(counts.map((count) => [subjectKey(count.org, count.correlationId), count]));
}

/**
 * The state of a correlation, from the backend's counts and the waiting counts. The backend has settled tasks that wait
 * for an approval or a pause, and may not yet see those that came back: for users they are open.
 * Undefined if nothing is known of it; a correlation may be paused before its first artifact.
 */
export function correlationState(
  { count, off }: CorrelationReading,
  said: { readonly cancelled: boolean; readonly paused: boolean },
): CorrelationCountedJson | undefined {
  if (!count && !said.paused && Object.values(off).every((n) => n === 0)) return undefined;
  const { artifacts, open, retrying, done, dead } = count ?? UNKNOWN;
  const { approvals, scheduled, paused, returning, sending } = off;
  const active = Math.max(open, returning) + sending;
  const all = active + approvals + paused;
  const waits = shown({ approvals, gathering: off.gathering, scheduled, retries: retrying, paused });
  return {
    status: statusOf(active, dead, waits !== undefined, said),
    artifacts: String(artifacts),
    open: String(all),
    done: String(Math.max(0, open + done - all)),
    dead: String(dead),
    ...(waits && { waits }),
  };
}

/** The status shown to users. */
function statusOf(
  active: number,
  dead: number,
  waits: boolean,
  said: { readonly cancelled: boolean; readonly paused: boolean },
): string {
  if (said.cancelled) return "cancelled";
  if (said.paused) return "paused";
  if (active > 0) return "running";
  if (waits) return "waiting";
  return dead > 0 ? "failed" : "done";
}

/** The counts that are not zero, if any. */
function shown(
  counts: Readonly<Record<keyof CorrelationWaitsJson, number>>,
): CorrelationWaitsJson | undefined {
  const some = Object.entries(counts).filter(([, count]) => count > 0);
  return some.length === 0
    ? undefined
    : Object.fromEntries(some.map(([name, count]) => [name, String(count)]));
}
