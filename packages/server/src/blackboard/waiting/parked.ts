import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Board } from "../board.ts";
import type { Task } from "../model/task.ts";
import { pauseOf, resumedTask, workKey } from "../model/task.ts";
import { openSetAside, type SetAside } from "../observe/set_aside.ts";
import type { Controls } from "./controls.ts";
import type { CorrelationPause } from "./controls_state.ts";

const LOOP = "board parked";
/** How long a dead process keeps the others from sending its rows. */
const SENDER_MS = 30_000;

export interface ParkedOptions {
  readonly pollMs: number;
  /** Tasks that go back to the board at a time. */
  readonly batch?: number;
  readonly setAside?: SetAside;
}

/**
 * Tasks of paused correlations, stored as rows: they block nobody and survive a restart.
 *
 * When the correlation is resumed, they are sent back to the board in the order in which they were parked, while newer tasks
 * of it are parked behind them. Each carries the number of the pause, and keeps its row until it has arrived: if the
 * correlation is paused again before that, it is the first again. When all have arrived, the pause ends.
 */
export interface Parked extends Service {
  /**
   * Parks a task of a paused correlation. Idempotent. Returns false if the task may run: the correlation
   * was resumed, or it is the task's turn.
   */
  holds(task: Task, pause: CorrelationPause | undefined): Promise<boolean>;
}

/** Whether a task is, or was, affected by a pause. Other tasks need no query. */
export function isAffectedByPause(task: Task, pause: CorrelationPause | undefined): boolean {
  return pause !== undefined || pauseOf(task) !== undefined;
}

/** Opens the parked tasks, and sends back those of resumed correlations. */
export function openParked(
  database: Database,
  board: Pick<Board, "enqueue">,
  context: Context,
  controls: Pick<Controls, "resuming" | "endPause" | "onPauseCorrelation" | "onWakeup">,
  { pollMs, batch = 100, setAside = openSetAside(context) }: ParkedOptions,
): Parked {
  const sender = context.newId();
  const wake = new Wake();
  const unlisten = controls.onPauseCorrelation(() => wake.wake());
  const loop = runLoop(context, LOOP, {
    wake,
    idleMs: pollMs,
    async step() {
      let more = false;
      for (const pause of controls.resuming()) {
        try {
          more = (await sendOn(pause)) || more;
          setAside.succeeded(LOOP, pause.org, pause.name);
        } catch (error) {
          // A failure of one correlation must not block the others.
          setAside.failed(LOOP, pause.org, pause.name, error);
        }
      }
      return more;
    },
  });

  /** Sends the next tasks. Returns whether there may be more. */
  async function sendOn(pause: CorrelationPause): Promise<boolean> {
    if (!(await isMine(pause))) return false;
    const { org, name, since } = pause;
    const rows = await database.query<{ place: bigint; task: Task }>({
      name: "board_parked_next",
      text: `SELECT place, task FROM runtime.board_parked
        WHERE correlation_id = $2 AND org_id = $1 AND sent < $3 ORDER BY place LIMIT $4`,
      values: [org, name, since, batch],
    });
    if (rows.length === 0) {
      await controls.endPause(pause);
      return false;
    }
    await board.enqueue(rows.map(({ task }) => resumedTask(task, since)));
    await database.query({
      name: "board_parked_sent",
      text: `UPDATE runtime.board_parked SET sent = $2
        WHERE place = ANY ($1::bigint[]) AND org_id = $3 AND sent < $2`,
      values: [rows.map(({ place }) => place), since, org],
    });
    return rows.length === batch;
  }

  /** One process sends at a time. The next one may repeat what the last one sent, and the board drops duplicates. */
  async function isMine({ org, name, since }: CorrelationPause): Promise<boolean> {
    const now = context.clock.now();
    const rows = await database.query({
      name: "board_parked_sender",
      text: `UPDATE runtime.board_controls SET sender = $4, sender_until = $6
        WHERE kind = 'pause' AND org_id = $1 AND name = $2 AND since = $3 AND active AND resuming
          AND (sender IS NULL OR sender = $4 OR sender_until <= $5) RETURNING 1`,
      values: [org, name, since, sender, new Date(now), new Date(now + SENDER_MS)],
    });
    return rows.length > 0;
  }

  /** Whether the correlation is still paused. The row is locked in share mode, so that the pause cannot end during this. */
  async function park(task: Task): Promise<boolean> {
    const { org_id: org, correlation_id: correlation } = task.artifacts[0];
    const rows = await database.query({
      name: "board_park",
      text: `WITH paused AS MATERIALIZED (
          SELECT FROM runtime.board_controls
          WHERE kind = 'pause' AND org_id = $2::text AND name = $3::text AND active FOR SHARE
        ), added AS (
          INSERT INTO runtime.board_parked (work, org_id, correlation_id, task)
          SELECT $1::text, $2::text, $3::text, $4::json FROM paused ON CONFLICT DO NOTHING
        )
        SELECT FROM paused`,
      values: [workKey(task), org, correlation, JSON.stringify(task)],
    });
    return rows.length > 0;
  }

  /** Deletes the row of a task that has arrived. */
  async function came(task: Task): Promise<void> {
    const { org_id: org, correlation_id: correlation } = task.artifacts[0];
    const [left] = await database.query<{ any: boolean }>({
      name: "board_parked_came",
      text: `WITH gone AS (DELETE FROM runtime.board_parked WHERE work = $1 AND org_id = $2 RETURNING place)
        SELECT EXISTS (
          SELECT FROM runtime.board_parked p WHERE p.correlation_id = $3 AND p.org_id = $2
            AND p.place NOT IN (SELECT place FROM gone)
        ) AS any`,
      values: [workKey(task), org, correlation],
    });
    if (!left?.any) wake.wake();
  }

  return {
    async holds(task, pause) {
      const from = pauseOf(task);
      const hasTurn = pause?.resuming === true && from === pause.since;
      if (pause && !hasTurn) {
        if (await park(task)) {
          if (pause.resuming) wake.wake();
          return true;
        }
        // This server does not know yet that the correlation was resumed.
        controls.onWakeup();
      }
      if (from !== undefined) await came(task);
      return false;
    },
    async stop() {
      unlisten();
      await loop.stop();
    },
  };
}
