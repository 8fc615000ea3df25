import type { Statement } from "../../database/database.ts";
import type { Routed } from "../board_options.ts";
import type { Artifact } from "../model/artifact.ts";
import type { DeadLetter, Task } from "../model/task.ts";
import { type Lanes, locksOf } from "./lanes.ts";

/** The table of open tasks. */
export const TASKS = "runtime.board_tasks";

/** Comes before a statement that must use its index: a plan that was made while a table was small is kept when it grows. */
export const BY_INDEX: Statement = {
  name: "board_by_index",
  text: `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true)`,
};

/** A task that this process may work on until its lease ends. */
export interface Claim {
  readonly seq: bigint;
  readonly org: string;
  readonly lane: string;
  readonly task: Task;
}

/** A retry: when it is due, and whether later tasks of its lane pass it. */
interface Retry {
  readonly claim: Claim;
  readonly delayMs: number;
  readonly leaves: boolean;
  readonly uncounted: boolean;
}

/** Becomes a dead letter, with the claim it comes from unless it is the router's. */
interface Letter {
  readonly letter: DeadLetter;
  readonly claim?: Claim;
  readonly taskId: string;
  readonly org: string;
  readonly correlation: string | undefined;
}

/** The contents of one settlement statement. */
export interface Settling {
  readonly ended: readonly Claim[];
  readonly retries: readonly Retry[];
  readonly letters: readonly Letter[];
  readonly outputs: readonly Routed[];
}

/** The parts of the board needed to store artifacts and their routing. */
interface Putting {
  readonly lanes: Lanes;
  readonly now: number;
}

/** Puts artifacts on the board, with their tasks. */
export function putStatement(items: readonly Routed[], how: Putting): Statement {
  const tasks = taskRows(items, how);
  return {
    name: "board_put",
    text: "SELECT runtime.board_put($1, $2, $3, $4)",
    values: [
      locksOf(tasks),
      artifactRows(items),
      JSON.stringify(tasks),
      letterRows(items.flatMap(routerLetters)),
    ],
  };
}

/** Settles claims and publishes their outputs. */
export function settleStatement(holder: string, settling: Settling, how: Putting): Statement {
  const { ended, retries, outputs } = settling;
  const tasks = taskRows(outputs, how);
  const left = retries.map(({ claim }) => placeOf(claim));
  return {
    name: "board_settle",
    text: "SELECT * FROM runtime.board_settle($1, $2, $3, $4, $5, $6, $7)",
    values: [
      holder,
      locksOf(ended.map(placeOf), left, tasks),
      seqsOf(ended),
      retries.length > 0 ? JSON.stringify(retries.map(retryRow)) : null,
      outputs.length > 0 ? artifactRows(outputs) : null,
      JSON.stringify(tasks),
      letterRows([...settling.letters, ...outputs.flatMap(routerLetters)]),
    ],
  };
}

/** Puts tasks before their agents. Answers the `n` of those that are new. */
export function enqueueStatement(tasks: readonly Task[], lanes: Lanes, now: number): Statement {
  const rows = tasks.map((task, n) => {
    const [artifact] = task.artifacts;
    return {
      ...taskRow(task, n, lanes, now),
      replay: task.replay_id ?? "",
      correlation: artifact.correlation_id,
      // A replay, and a task of several artifacts, is none that routing made.
      mark: task.replay_id || task.artifacts.length > 1 ? undefined : markOf(task, artifact),
      body: JSON.stringify(task),
    };
  });
  return {
    name: "board_enqueue",
    text: "SELECT n FROM runtime.board_enqueue($1, $2) AS n",
    values: [locksOf(rows), JSON.stringify(rows)],
  };
}

/** Renews leases. Answers those that are still the holder's. A locked row is being settled, or renewed the next time. */
export function renewStatement(holder: string, claims: readonly Claim[], leaseMs: number): Statement {
  return {
    name: "board_renew",
    text: `WITH renewed AS (
        UPDATE runtime.board_tasks t SET held_until = now() + $3 * interval '1 ms' WHERE t.seq = ANY (ARRAY(
          SELECT t.seq FROM runtime.board_tasks t WHERE t.seq = ANY ($2::bigint[]) AND t.claimed_by = $1
          FOR NO KEY UPDATE SKIP LOCKED
        ))
      ) ${HELD}`,
    values: [holder, seqsOf(claims), leaseMs],
  };
}

/** The claims that the holder still has. */
export function heldStatement(holder: string, claims: readonly Claim[]): Statement {
  return { name: "board_held", text: HELD, values: [holder, seqsOf(claims)] };
}

/** Gives claims back; those that were not begun count as no attempt. */
export function releaseStatement(holder: string, claims: readonly Claim[], begun: boolean): Statement {
  return {
    name: "board_release",
    text: `UPDATE runtime.board_tasks t
      SET claimed_by = NULL, held_until = NULL, due_at = clock_timestamp(), attempt = t.attempt - $3
      WHERE t.seq = ANY ($2::bigint[]) AND t.claimed_by = $1 RETURNING t.agent`,
    values: [holder, seqsOf(claims), begun ? 0 : 1],
  };
}

const HELD = "SELECT t.seq FROM runtime.board_tasks t WHERE t.seq = ANY ($2::bigint[]) AND t.claimed_by = $1";

const seqsOf = (claims: readonly Claim[]) => claims.map(({ seq }) => seq);

const placeOf = ({ task, org, lane }: Claim) => ({ agent: task.agent, org, lane });

function retryRow({ claim, delayMs, leaves, uncounted }: Retry) {
  const delay = Math.max(0, Math.round(delayMs));
  // JSON has no bigint. PostgreSQL reads the text as one.
  return { seq: String(claim.seq), ...placeOf(claim), delay, leaves, uncounted };
}

/** Artifacts in the order of id, version and org, in which everybody writes them; `n` is the order of publication. */
function artifactRows(items: readonly Routed[]): string {
  const rows = items.map((item, n) => {
    const { id, version, org_id, type, correlation_id } = item.artifact;
    const body = JSON.stringify(item.artifact);
    return { n, id, version, org: org_id, type, correlation: correlation_id, routes: routesOf(item), body };
  });
  rows.sort((a, b) => order(a.id, b.id) || a.version - b.version || order(a.org, b.org));
  return JSON.stringify(rows);
}

const order = (one: string, other: string) => (one === other ? 0 : one < other ? -1 : 1);

function taskRows(items: readonly Routed[], { lanes, now }: Pick<Putting, "lanes" | "now">) {
  const rows: ReturnType<typeof taskRow>[] = [];
  for (const { routing } of items)
    for (const task of routing.tasks) rows.push(taskRow(task, rows.length, lanes, now));
  return rows;
}

function taskRow(task: Task, n: number, lanes: Lanes, now: number) {
  const { id, agent, key, artifacts } = task;
  const [{ org_id: org, id: artifact, version }] = artifacts;
  const ms = Date.parse(task.created_at);
  return {
    n,
    id,
    agent,
    lane: lanes.of(task),
    org,
    key,
    artifact,
    version,
    created: Number.isNaN(ms) ? now : ms,
  };
}

/** How the row of an artifact remembers a task. */
function markOf(task: Pick<Task, "agent" | "id">, artifact: Pick<Artifact, "id">): string {
  return task.id === artifact.id ? task.agent : `${task.agent}/${task.id}`;
}

function routesOf({ artifact, routing }: Routed): string {
  const dead = routing.dead.map(({ agent, task }) => ({ agent, id: task?.id ?? artifact.id }));
  return [...routing.tasks, ...dead].map((task) => markOf(task, artifact)).join();
}

function routerLetters({ artifact, routing }: Routed): Letter[] {
  const { org_id: org, correlation_id: correlation } = artifact;
  return routing.dead.map((letter) => ({
    letter,
    taskId: letter.task?.id ?? artifact.id,
    org,
    correlation,
  }));
}

function letterRows(letters: readonly Letter[]): string | null {
  if (letters.length === 0) return null;
  const rows = letters.map(({ letter, claim, taskId, org, correlation }) => ({
    seq: claim && String(claim.seq),
    agent: letter.agent,
    id: letter.id,
    task: taskId,
    org,
    correlation,
    body: JSON.stringify(letter),
  }));
  return JSON.stringify(rows);
}
