import { KhalaError } from "@khala/contracts";
import type { Database, Statement } from "../../database/database.ts";
import type { Wakeups } from "../../database/wakeups.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { type ControlRow, ControlState, type CorrelationPause } from "./controls_state.ts";

/** The wake-up for a changed pause or cancellation. No agent's name contains a colon. */
export const CONTROLS_WAKEUP = "board:control:";

export interface ControlsOptions {
  readonly wakeups: Pick<Wakeups, "send">;
  readonly pollMs: number;
  /** How long a cancellation is kept. */
  readonly keepMs: number;
}

/** Pauses and cancellations of all servers. Each server has a copy in memory, so reads are cheap. */
export interface Controls extends Service {
  pause(agent: string): Promise<void>;
  resume(agent: string): Promise<void>;
  paused(agent: string): boolean;
  /** Resolves once the agent is not paused, or the signal aborts. */
  gate(agent: string, signal: AbortSignal): Promise<void>;
  /** Cancels the tasks created for the agent until now. */
  cancelAgent(agent: string): Promise<void>;
  /** When the agent was last cancelled, in milliseconds. Tasks created until then are cancelled. */
  agentCancelled(agent: string): number | undefined;

  pauseCorrelation(org: string, correlationId: string): Promise<void>;
  /** Resumes a correlation. Returns whether it was paused. */
  resumeCorrelation(org: string, correlationId: string): Promise<boolean>;
  correlationPause(org: string, correlationId: string | undefined): CorrelationPause | undefined;
  /** Pauses that are being resumed. */
  resuming(): CorrelationPause[];
  /** Ends a pause that is being resumed, if none of its tasks is left. */
  endPause(pause: CorrelationPause): Promise<void>;
  cancel(org: string, correlationId: string): Promise<void>;
  uncancel(org: string, correlationId: string): Promise<void>;
  cancelled(org: string, correlationId: string | undefined): boolean;

  /** Calls `fn` for each correlation cancelled from now on, on any server. Returns the function that unsubscribes. */
  onCancel(fn: (org: string, correlationId: string) => void): () => void;
  /** The same for cancelled agents. */
  onCancelAgent(fn: (agent: string) => void): () => void;
  /** The same for agents that are paused or resumed. */
  onPause(fn: (agent: string) => void): () => void;
  /** The same for correlations that are paused or resumed. */
  onPauseCorrelation(fn: (org: string, correlationId: string) => void): () => void;
  /** Reads changes now, because another server made one. */
  onWakeup(): void;
}

const MAX_NAME = 512;
const PAGE = 10_000;
/** Agents work for all orgs. */
const NO_ORG = "";

/** Opens the controls. Resolves once the current pauses and cancellations are loaded. */
export async function openControls(
  database: Database,
  context: Context,
  { wakeups, pollMs, keepMs }: ControlsOptions,
): Promise<Controls> {
  const state = new ControlState();
  const wake = new Wake();
  let known = 0n;
  let refreshing = Promise.resolve(false);
  const now = () => new Date(context.clock.now());

  /** Reads the changes since the last known one. Returns whether there are more. */
  async function read(): Promise<boolean> {
    const rows = await database.query<ControlRow>({
      name: "board_controls_changed",
      text: `SELECT kind, org_id AS org, name, active, resuming, since, changed, changed_at AS at
        FROM runtime.board_controls WHERE changed > $1 ORDER BY changed LIMIT $2`,
      values: [known, PAGE],
    });
    for (const row of rows) {
      known = row.changed;
      try {
        state.apply(row);
      } catch (error) {
        // A listener that throws must not hold up the changes after this one.
        context.log.error({ err: (error as Error).message, name: row.name }, "a control was not announced");
      }
    }
    return rows.length === PAGE;
  }

  /** Runs one at a time, so that an older result cannot overwrite a newer one. */
  function refresh(): Promise<boolean> {
    refreshing = refreshing.then(read, read);
    return refreshing;
  }

  async function step(): Promise<boolean> {
    const more = await refresh();
    state.forget(context.clock.now() - keepMs);
    return more;
  }

  async function write(...statements: Statement[]): Promise<boolean> {
    const rows = await database.transaction(statements);
    wakeups.send(CONTROLS_WAKEUP);
    await refresh();
    return rows.at(-1)!.length > 0;
  }

  async function change(kind: ControlRow["kind"], org: string, name: string, active: boolean): Promise<void> {
    if (name.length > MAX_NAME || name.includes("\0"))
      throw new KhalaError("invalid_request", `A name may have at most ${MAX_NAME} characters, without NUL.`);
    await write(changeStatement(kind, org, name, active, now()));
  }

  while (await refresh());
  const loop = runLoop(context, "board controls", { step, wake, idleMs: pollMs });

  return {
    pause: (agent) => change("pause", NO_ORG, agent, true),
    resume: (agent) => change("pause", NO_ORG, agent, false),
    paused: (agent) => state.pausedAgents.has(agent),
    gate: (agent, signal) => state.gate(agent, signal),
    cancelAgent: (agent) => change("cancel", NO_ORG, agent, true),
    agentCancelled: (agent) => state.cancelledAgents.get(agent),

    pauseCorrelation: (org, correlationId) => change("pause", org, correlationId, true),
    resumeCorrelation: (org, correlationId) => write(resumeStatement(org, correlationId, now())),
    correlationPause: (org, correlationId) => state.correlationPause(org, correlationId),
    resuming: () => state.resuming(),
    async endPause({ org, name, since }) {
      // Parking a task shares this row's lock, so it is locked before the parked tasks are read.
      await write(LOCK, lockPauseStatement(org, name), endStatement(org, name, since, now()));
    },
    cancel: (org, correlationId) => change("cancel", org, correlationId, true),
    uncancel: (org, correlationId) => change("cancel", org, correlationId, false),
    cancelled: (org, correlationId) => state.cancelled(org, correlationId),

    onCancel: (fn) => listen(state.onCancel, fn),
    onCancelAgent: (fn) => listen(state.onCancelAgent, fn),
    onPause: (fn) => listen(state.onPause, fn),
    onPauseCorrelation: (fn) => listen(state.onPauseCorrelation, fn),
    onWakeup: () => wake.wake(),
    stop: () => loop.stop(),
  };
}

const VERSION = "UPDATE runtime.board_controls_version SET version = version + 1 RETURNING version";

/** An active pause keeps its number, unless it is being resumed: then a new pause begins. */
function changeStatement(
  kind: ControlRow["kind"],
  org: string,
  name: string,
  active: boolean,
  at: Date,
): Statement {
  return {
    name: "board_controls_change",
    text: `WITH version AS (${VERSION})
      INSERT INTO runtime.board_controls AS c (kind, org_id, name, active, changed, changed_at, since)
      SELECT $1::text, $2::text, $3::text, $4::boolean, version, $5::timestamptz, version FROM version
      ON CONFLICT (name, org_id, kind) DO UPDATE SET active = excluded.active, changed = excluded.changed,
        changed_at = excluded.changed_at, resuming = false,
        since = CASE WHEN c.active AND NOT c.resuming THEN c.since ELSE excluded.since END`,
    values: [kind, org, name, active, at],
  };
}

function resumeStatement(org: string, name: string, at: Date): Statement {
  return {
    name: "board_controls_resume",
    text: `WITH version AS (${VERSION})
      UPDATE runtime.board_controls c SET resuming = true, changed = version, changed_at = $3, sender = NULL
      FROM version WHERE c.kind = 'pause' AND c.org_id = $1 AND c.name = $2 AND c.active AND NOT c.resuming
      RETURNING 1`,
    values: [org, name, at],
  };
}

const LOCK: Statement = {
  name: "board_controls_lock",
  text: "SELECT FROM runtime.board_controls_version FOR UPDATE",
};

function lockPauseStatement(org: string, name: string): Statement {
  return {
    name: "board_controls_lock_pause",
    text: `SELECT FROM runtime.board_controls WHERE kind = 'pause' AND org_id = $1 AND name = $2 FOR UPDATE`,
    values: [org, name],
  };
}

function endStatement(org: string, name: string, since: bigint, at: Date): Statement {
  return {
    name: "board_controls_end",
    text: `WITH over AS (
        SELECT c.ctid FROM runtime.board_controls c
        WHERE c.kind = 'pause' AND c.org_id = $1 AND c.name = $2 AND c.since = $3 AND c.active AND c.resuming
          AND NOT EXISTS (SELECT FROM runtime.board_parked p WHERE p.correlation_id = $2 AND p.org_id = $1)
      ), version AS (${VERSION})
      UPDATE runtime.board_controls c SET active = false, resuming = false, changed = version, changed_at = $4
      FROM over, version WHERE c.ctid = over.ctid RETURNING 1`,
    values: [org, name, since, at],
  };
}

function listen<T>(listeners: Set<T>, fn: T): () => void {
  listeners.add(fn);
  return () => void listeners.delete(fn);
}
