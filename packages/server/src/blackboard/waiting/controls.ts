import { KhalaError } from "@khala/contracts";
import type { Database, Statement } from "../../database/database.ts";
import type { Wakeups } from "../../database/wakeups.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { type ControlRow, ControlState, type CorrelationPause } from "./controls_state.ts";

/** The wakeup that a pause or a cancellation changed. No agent's name has a colon. */
export const CONTROLS_WAKEUP = "board:control:";

export interface ControlsOptions {
  readonly wakeups: Pick<Wakeups, "send">;
  readonly pollMs: number;
  /** How long a cancellation holds. */
  readonly keepMs: number;
}

/** What people have paused and cancelled, on all servers. Looking costs nothing: each server has a copy. */
export interface Controls extends Service {
  pause(agent: string): Promise<void>;
  resume(agent: string): Promise<void>;
  paused(agent: string): boolean;
  /** Resolves once the agent is not paused, or the signal aborts. */
  gate(agent: string, signal: AbortSignal): Promise<void>;
  /** What was made for the agent until now is not wanted any more. */
  cancelAgent(agent: string): Promise<void>;
  /** When the agent was cancelled last, in milliseconds: what was made for it until then is not wanted. */
  agentCancelled(agent: string): number | undefined;

  pauseCorrelation(org: string, correlationId: string): Promise<void>;
  /** Lets the tasks of a correlation go on. Answers whether it was paused. */
  resumeCorrelation(org: string, correlationId: string): Promise<boolean>;
  correlationPause(org: string, correlationId: string | undefined): CorrelationPause | undefined;
  /** The pauses whose tasks are going on. */
  resuming(): CorrelationPause[];
  /** Ends a pause that is being resumed, if none of its tasks is left. */
  endPause(pause: CorrelationPause): Promise<void>;
  cancel(org: string, correlationId: string): Promise<void>;
  uncancel(org: string, correlationId: string): Promise<void>;
  cancelled(org: string, correlationId: string | undefined): boolean;

  /** Calls `fn` for each correlation that is cancelled from now on, here or elsewhere, until the answer is called. */
  onCancel(fn: (org: string, correlationId: string) => void): () => void;
  /** The same for agents that are cancelled. */
  onCancelAgent(fn: (agent: string) => void): () => void;
  /** Calls `fn` for each agent that is paused or resumed from now on, until the answer is called. */
  onPause(fn: (agent: string) => void): () => void;
  /** The same for correlations that are paused, are being resumed, or go on. */
  onPauseCorrelation(fn: (org: string, correlationId: string) => void): () => void;
  /** Looks for changes now: another server made one. */
  onWakeup(): void;
}

const MAX_NAME = 512;
const PAGE = 10_000;
/** An agent works for every org. */
const NO_ORG = "";

/** Opens the controls; what is paused and cancelled is known before it resolves. */
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

  /** Takes the changes since the last one that is known. Answers whether there are more. */
  async function read(): Promise<boolean> {
    const rows = await database.query<ControlRow>({
      name: "board_controls_changed",
      text: `SELECT kind, org_id AS org, name, active, resuming, since, changed, changed_at AS at
        FROM runtime.board_controls WHERE changed > $1 ORDER BY changed LIMIT $2`,
      values: [known, PAGE],
    });
    for (const row of rows) {
      state.apply(row);
      known = row.changed;
    }
    return rows.length === PAGE;
  }

  /** One at a time: an older answer must not undo a newer one. */
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
      throw new KhalaError("invalid_request", `A name has at most ${MAX_NAME} characters, and no NUL.`);
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
      // Who parks a task shares the row: locked first, so that the look at the tasks is a later one.
      await write(LOCK, lockPauseStatement(org, name), endStatement(org, name, since, now()));
    },
    cancel: (org, correlationId) => change("cancel", org, correlationId, true),
    uncancel: (org, correlationId) => change("cancel", org, correlationId, false),
    cancelled: (org, correlationId) => state.cancelled(org, correlationId),

    onCancel: (fn) => listen(state.onCancel, fn),
    onCancelAgent: (fn) => listen(state.onCancelAgent, fn),
    onPause: (fn) => listen(state.onPause, fn),
    onPauseCorrelation: (fn) => listen(state.onPauseCorrelation, fn),
    wakeup: () => wake.wake(),
    stop: () => loop.stop(),
  };
}

const VERSION = "UPDATE runtime.board_controls_version SET version = version + 1 RETURNING version";

/** A pause that is on stays the one that it is, unless it is being resumed: then another begins. */
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
