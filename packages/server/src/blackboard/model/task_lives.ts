import { idempotencyKey, type Task } from "./task.ts";

/** Between the replay of a task and the number of the pause that it came back from. It sorts before what ids are made of. */
const MARK = "+";
const DIGITS = 12;
const UUID_V7 = /^([0-9a-f]{8})-([0-9a-f]{4})-7/;

/** The task as it comes back from a pause: the board has settled it, so it needs a life of its own. */
export function resumedTask(task: Task, pause: bigint): Task {
  const replay = `${replayOf(task)}${MARK}${String(pause).padStart(DIGITS, "0")}`;
  return { ...task, attempt: 1, replay_id: replay };
}

/** The pause that it came back from last. */
export function pauseOf({ replay_id = "" }: Pick<Task, "replay_id">): bigint | undefined {
  const at = replay_id.indexOf(MARK);
  return at < 0 ? undefined : BigInt(replay_id.slice(at + 1));
}

/** What agents are told, and outputs are named by: a task that was paused is the same work, and a replay is not. */
export function workKey(task: Pick<Task, "id" | "agent" | "replay_id">): string {
  return idempotencyKey({ id: task.id, agent: task.agent, replay_id: replayOf(task) });
}

/** When it was made: by its artifact, or by the person who replayed it. Milliseconds. */
export function madeAt(task: Pick<Task, "created_at" | "replay_id">): number {
  const time = UUID_V7.exec(task.replay_id ?? "");
  return time ? Number.parseInt(`${time[1]}${time[2]}`, 16) : Date.parse(task.created_at);
}

function replayOf({ replay_id = "" }: Pick<Task, "replay_id">): string {
  const at = replay_id.indexOf(MARK);
  return at < 0 ? replay_id : replay_id.slice(0, at);
}
