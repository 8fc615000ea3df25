import { KhalaError } from "@khala/contracts";
import type { Database } from "../database/database.ts";
import type { Hints } from "../database/hints.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";

/** The hint that a pause or a cancellation changed. No agent's name has a colon. */
export const CONTROLS_HINT = "board:control:";

export interface ControlsOptions {
  readonly hints: Pick<Hints, "send">;
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
  cancel(org: string, correlationId: string): Promise<void>;
  uncancel(org: string, correlationId: string): Promise<void>;
  cancelled(org: string, correlationId: string | undefined): boolean;
  /** Calls `fn` for each correlation that is cancelled from now on, here or elsewhere, until the answer is called. */
  onCancel(fn: (org: string, correlationId: string) => void): () => void;
  /** Calls `fn` for each agent that is paused or resumed from now on, until the answer is called. */
  onPause(fn: (agent: string) => void): () => void;
  /** Looks for changes now: another server made one. */
  hint(): void;
}

interface ControlRow {
  readonly kind: "pause" | "cancel";
  readonly org: string;
  readonly name: string;
  readonly active: boolean;
  readonly changed: bigint;
  readonly at: Date;
}

const MAX_NAME = 512;
const PAGE = 10_000;

/** Opens the controls; what is paused and cancelled is known before it resolves. */
export async function openControls(
  database: Database,
  context: Context,
  { hints, pollMs, keepMs }: ControlsOptions,
): Promise<Controls> {
  const paused = new Set<string>();
  /** Since when, the oldest first. */
  const cancelled = new Map<string, number>();
  const gates = new Map<string, Set<() => void>>();
  const cancelListeners = new Set<(org: string, correlationId: string) => void>();
  const pauseListeners = new Set<(agent: string) => void>();
  const wake = new Wake();
  let known = 0n;
  let refreshing = Promise.resolve(false);

  /** Takes the changes since the last one that is known. Answers whether there are more. */
  async function read(): Promise<boolean> {
    const rows = await database.query<ControlRow>({
      name: "board_controls_changed",
      text: `SELECT kind, org_id AS org, name, active, changed, changed_at AS at FROM runtime.board_controls
        WHERE changed > $1 ORDER BY changed LIMIT $2`,
      values: [known, PAGE],
    });
    for (const row of rows) {
      apply(row);
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
    for (const [key, at] of cancelled) {
      if (at > context.clock.now() - keepMs) break;
      cancelled.delete(key);
    }
    return more;
  }

  function apply({ kind, org, name, active, at }: ControlRow): void {
    if (kind === "pause") {
      if (paused.has(name) === active) return;
      if (active) paused.add(name);
      else paused.delete(name);
      if (!active) for (const open of gates.get(name) ?? []) open();
      for (const listener of [...pauseListeners]) listener(name);
      return;
    }
    const key = keyOf(org, name);
    const before = cancelled.delete(key);
    if (!active) return;
    cancelled.set(key, at.getTime());
    if (!before) for (const listener of [...cancelListeners]) listener(org, name);
  }

  async function change(kind: "pause" | "cancel", org: string, name: string, active: boolean): Promise<void> {
    if (name.length > MAX_NAME || name.includes("\0"))
      throw new KhalaError("invalid_request", `A name has at most ${MAX_NAME} characters, and no NUL.`);
    await database.query({
      name: "board_controls_change",
      text: `WITH version AS (
          UPDATE runtime.board_controls_version SET version = version + 1 RETURNING version
        )
        INSERT INTO runtime.board_controls AS c (kind, org_id, name, active, changed, changed_at)
        SELECT $1::text, $2::text, $3::text, $4::boolean, version, $5::timestamptz FROM version
        ON CONFLICT (name, org_id, kind) DO UPDATE SET active = excluded.active, changed = excluded.changed,
          changed_at = excluded.changed_at`,
      values: [kind, org, name, active, new Date(context.clock.now())],
    });
    hints.send(CONTROLS_HINT);
    await refresh();
  }

  while (await refresh());
  const loop = runLoop(context, "board controls", { step, wake, idleMs: pollMs });

  return {
    pause: (agent) => change("pause", "", agent, true),
    resume: (agent) => change("pause", "", agent, false),
    paused: (agent) => paused.has(agent),
    gate(agent, signal) {
      if (!paused.has(agent) || signal.aborted) return Promise.resolve();
      return new Promise((resolve) => {
        const waiting = gates.get(agent) ?? new Set();
        gates.set(agent, waiting);
        const open = () => {
          waiting.delete(open);
          if (waiting.size === 0) gates.delete(agent);
          signal.removeEventListener("abort", open);
          resolve();
        };
        waiting.add(open);
        signal.addEventListener("abort", open, { once: true });
      });
    },
    cancel: (org, correlationId) => change("cancel", org, correlationId, true),
    uncancel: (org, correlationId) => change("cancel", org, correlationId, false),
    cancelled: (org, correlationId) =>
      correlationId !== undefined && cancelled.has(keyOf(org, correlationId)),
    onCancel: (fn) => listen(cancelListeners, fn),
    onPause: (fn) => listen(pauseListeners, fn),
    hint: () => wake.wake(),
    stop: () => loop.stop(),
  };
}

const keyOf = (org: string, correlationId: string) => `${org}\0${correlationId}`;

function listen<T>(listeners: Set<T>, fn: T): () => void {
  listeners.add(fn);
  return () => void listeners.delete(fn);
}
