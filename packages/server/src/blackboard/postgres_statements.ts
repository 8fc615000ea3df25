import { partitionOf } from "@khala/contracts";
import type { Statement } from "../database/database.ts";
import type { Artifact } from "./artifact.ts";
import type { BoardOptions, Routing } from "./board.ts";
import type { DeadLetter, Task } from "./task.ts";

/** An artifact, and what it leads to. */
export interface Routed {
  readonly artifact: Artifact;
  readonly routing: Routing;
}

/** Which tasks this process takes at once, and for how long. */
export interface Taking {
  readonly holder: string;
  readonly leaseMs: number;
  /** By the place of a task among all of them; for settlements: of whose lane it takes the next. */
  readonly wants: readonly boolean[];
}

const LANES = 64;

/** What keeps a task in order with others of its agent. */
export type LaneOf = (task: Task) => string | null;

/** The lanes of the agents; one that is not known keeps the order of its keys. */
export function lanesOf(agents: BoardOptions["agents"]): LaneOf {
  const orders = new Map(agents.map(({ agent, order }) => [agent, order]));
  return ({ agent, key }) => {
    const order = orders.get(agent) ?? "key";
    if (order === "none") return null;
    return order === "key" ? key : String(partitionOf(key, LANES));
  };
}

/** How the row of an artifact remembers a task. */
function mark(task: Pick<Task, "agent" | "id">, artifact: Pick<Artifact, "id">): string {
  return task.id === artifact.id ? task.agent : `${task.agent}/${task.id}`;
}

function routesOf({ artifact, routing }: Routed): string {
  const dead = routing.dead.map((letter) => ({ agent: letter.agent, id: letter.task?.id ?? artifact.id }));
  return [...routing.tasks, ...dead].map((task) => mark(task, artifact)).join();
}

function millis(time: string, otherwise: number): number {
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? otherwise : ms;
}

function taskColumns(items: readonly Routed[], laneOf: LaneOf, now: number): unknown[][] {
  const artifacts = items.flatMap(({ artifact, routing }) => routing.tasks.map(() => artifact));
  const tasks = items.flatMap(({ routing }) => routing.tasks);
  return [
    artifacts.map(({ id }) => id),
    artifacts.map(({ version }) => version),
    artifacts.map(({ correlation_id }) => correlation_id ?? null),
    tasks.map((task) => task.agent),
    tasks.map(laneOf),
    tasks.map((task) => task.key),
    tasks.map((task) => task.id),
    tasks.map((task) => millis(task.created_at, now)),
  ];
}

function deadColumns(items: readonly Routed[]): unknown[][] {
  const dead = items.flatMap(({ artifact, routing }) => routing.dead.map((letter) => ({ artifact, letter })));
  return [
    dead.map(({ letter }) => letter.agent),
    dead.map(({ letter }) => letter.id),
    dead.map(({ letter, artifact }) => letter.task?.id ?? artifact.id),
    dead.map(({ artifact }) => artifact.correlation_id ?? null),
    dead.map(({ letter }) => JSON.stringify(letter)),
  ];
}

/** Puts artifacts on the board, with their tasks if this process routes. */
export function putStatement(
  items: readonly Routed[],
  bodies: readonly string[],
  how: { readonly routes: boolean; readonly laneOf: LaneOf; readonly now: number; readonly taking?: Taking },
): Statement {
  const artifacts = items.map(({ artifact }) => artifact);
  const tasks = taskColumns(items, how.laneOf, how.now);
  return {
    name: "board_put",
    text: `SELECT n, seq FROM runtime.board_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
      $19, $20, $21, $22, $23, $24)`,
    values: [
      how.routes,
      artifacts.map(({ id }) => id),
      artifacts.map(({ version }) => version),
      artifacts.map(({ org_id }) => org_id),
      artifacts.map(({ type }) => type),
      artifacts.map(({ correlation_id }) => correlation_id ?? null),
      items.map(routesOf),
      bodies,
      ...tasks,
      how.taking?.wants ?? tasks[0]!.map(() => false),
      ...deadColumns(items),
      how.taking?.holder ?? null,
      how.taking?.leaseMs ?? 0,
    ],
  };
}

/** Routes artifacts that others left to the router. */
export function routeStatement(
  seqs: readonly bigint[],
  items: readonly Routed[],
  laneOf: LaneOf,
  now: number,
): Statement {
  const artifacts = items.map(({ artifact }) => artifact);
  return {
    name: "board_route",
    text: `SELECT runtime.board_route($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`,
    values: [
      seqs,
      artifacts.map(({ id }) => id),
      artifacts.map(({ version }) => version),
      items.map(routesOf),
      ...taskColumns(items, laneOf, now),
      ...deadColumns(items),
    ],
  };
}

/** Puts tasks before their agents; answers the numbers of those that are new. */
export function enqueueStatement(tasks: readonly Task[], laneOf: LaneOf, now: number): Statement {
  const only = tasks.map(({ artifacts }) => (artifacts.length === 1 ? artifacts[0] : undefined));
  return {
    name: "board_enqueue",
    text: "SELECT n FROM runtime.board_enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    values: [
      tasks.map((task) => task.agent),
      tasks.map(laneOf),
      tasks.map((task) => task.key),
      tasks.map((task) => task.id),
      tasks.map((task) => task.replay_id ?? ""),
      tasks.map((task) => task.artifacts[0].correlation_id ?? null),
      tasks.map((task) => millis(task.created_at, now)),
      tasks.map((task) => JSON.stringify(task)),
      only.map((artifact) => artifact?.id ?? null),
      only.map((artifact) => artifact?.version ?? null),
      tasks.map((task, i) => mark(task, only[i] ?? task)),
    ],
  };
}

/** A claim, as its holder knows it. */
export interface Claimed {
  readonly seq: bigint;
  readonly lane: string | null;
  readonly task: Task;
}

/** What becomes of a claim. */
export interface Settling {
  readonly claim: Claimed;
  readonly kind: "done" | "retry" | "dead";
  readonly delayMs: number;
  /** Whether it leaves its lane: all but a retry of a strict agent. */
  readonly leaves: boolean;
  readonly letter?: DeadLetter;
}

/** Settles claims, in the order in which all take lanes; with `all`, every one of them or none. */
export function settleStatement(items: readonly Settling[], all: boolean, next: Taking): Statement {
  return {
    name: "board_settle",
    text: "SELECT * FROM runtime.board_settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
    values: [
      next.holder,
      items.map(({ claim }) => claim.seq),
      items.map(({ claim }) => claim.task.attempt),
      items.map(({ kind }) => kind),
      items.map(({ delayMs }) => Math.max(0, Math.round(delayMs))),
      items.map(({ claim }) => claim.task.agent),
      items.map(({ claim }) => claim.lane),
      items.map(({ leaves }) => leaves),
      items.map(({ letter }) => letter?.id ?? null),
      items.map(({ claim }) => claim.task.id),
      items.map(({ claim }) => claim.task.artifacts[0].correlation_id ?? null),
      items.map(({ letter }) => (letter ? JSON.stringify(letter) : null)),
      all,
      next.wants,
      next.leaseMs,
    ],
  };
}
