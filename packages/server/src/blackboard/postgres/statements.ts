import type { Statement } from "../../database/database.ts";
import type { Routed } from "../board.ts";
import { type Artifact, areAscending } from "../model/artifact.ts";
import type { Task } from "../model/task.ts";
import { once, textArray, unless, uuidArray } from "./arrays.ts";
import type { Arrivals } from "./arrivals.ts";
import { type Bundled, bundleColumns, intoBundles } from "./bundles.ts";
import type { Taking } from "./claimed.ts";
import { correlationColumn } from "./correlation_column.ts";
import { type Lanes, lanesTogether } from "./lanes.ts";
import { runColumns } from "./runs.ts";

/** Where a task's place is. */
export const QUEUE = "runtime.board_queue";

/** How the row of an artifact remembers a task. */
function mark(task: Pick<Task, "agent" | "id">, artifact: Pick<Artifact, "id">): string {
  return task.id === artifact.id ? task.agent : `${task.agent}/${task.id}`;
}

function routesOf({ artifact, routing }: Routed): string {
  const [task, ...others] = routing.tasks;
  // Most have one.
  if (task && others.length + routing.dead.length === 0) return mark(task, artifact);
  const dead = routing.dead.map((letter) => ({ agent: letter.agent, id: letter.task?.id ?? artifact.id }));
  return [...routing.tasks, ...dead].map((task) => mark(task, artifact)).join();
}

function millis(time: string, otherwise: number): number {
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? otherwise : ms;
}

/**
 * Artifacts and tasks are numbered in the order of publication, and the tasks of an artifact follow it. What goes into a
 * batch has a number, but no place in the queue.
 */
function numbersOf(
  items: readonly Routed[],
  isBatched: (agent: string) => boolean,
): { ofArtifacts: number[]; ofTasks: number[] } {
  let last = 0;
  const ofTasks: number[] = [];
  const ofArtifacts = items.map(({ routing }) => {
    const number = ++last;
    for (const { agent } of routing.tasks) {
      last++;
      if (!isBatched(agent)) ofTasks.push(last);
    }
    return number;
  });
  return { ofArtifacts, ofTasks };
}

function taskColumns(
  items: readonly Routed[],
  lanes: readonly (string | null)[],
  numbers: readonly number[],
  now: number,
  isOneEach: boolean,
): unknown[] {
  if (numbers.length === 0) return [[], [], null, null, [], null, [], null, []];
  const artifacts = items.flatMap(({ artifact, routing }) => routing.tasks.map(() => artifact));
  const tasks = items.flatMap(({ routing }) => routing.tasks);
  const isSame = tasks.every((task, i) => task.id === artifacts[i]!.id);
  return [
    numbers,
    isOneEach ? null : artifacts.map(({ id }) => id),
    unless(
      1,
      artifacts.map(({ version }) => version),
    ),
    unless(null, artifacts.map(correlationColumn)),
    textArray(tasks.map((task) => task.agent)),
    unless(null, lanes),
    textArray(tasks.map((task) => task.key)),
    isSame ? null : tasks.map((task) => task.id),
    tasks.map((task) => millis(task.created_at, now)),
  ];
}

/** Whose first version's tasks may have to be given their lanes. */
function followColumns(items: readonly Routed[], lanes: Lanes): unknown[] {
  if (items.every(({ artifact }) => artifact.version === 1)) return [null, null, null];
  const tasks = items.flatMap(({ routing }) => routing.tasks).filter(lanes.mayFollow);
  if (tasks.length === 0) return [null, null, null];
  return [tasks.map((task) => task.artifacts[0].id), tasks.map((task) => task.agent), tasks.map(lanes.of)];
}

function deadColumns(items: readonly Routed[]): unknown[] {
  const dead = items.flatMap(({ artifact, routing }) => routing.dead.map((letter) => ({ artifact, letter })));
  if (dead.length === 0) return [null, null, null, null, null];
  return [
    dead.map(({ letter }) => letter.agent),
    dead.map(({ letter }) => letter.id),
    dead.map(({ letter, artifact }) => letter.task?.id ?? artifact.id),
    dead.map(({ artifact }) => correlationColumn(artifact)),
    dead.map(({ letter }) => JSON.stringify(letter)),
  ];
}

/** What puts artifacts on the board, and how their tasks are put there. */
export interface Putting {
  readonly statement: Statement;
  readonly packed: Bundled;
}

/** Puts artifacts on the board, with their tasks if this process routes, but for those that go into batches. */
export function putting(
  items: readonly Routed[],
  /** Without those that go into batches. */
  queued: readonly Routed[],
  bodies: readonly string[],
  how: {
    readonly routes: boolean;
    readonly lanes: Lanes;
    readonly arrivals: Arrivals;
    readonly now: number;
    readonly fewest: number;
    readonly taking?: Taking;
  },
): Putting {
  const { taking, fewest } = how;
  const { ofArtifacts, ofTasks } = numbersOf(items, how.arrivals.isBatched);
  const laneOf = lanesTogether(queued, how.lanes);
  const { hasOwnKey } = how.lanes;
  const packed = intoBundles(queued, bodies, ofTasks, { laneOf, hasOwnKey, wants: taking?.wants, fewest });
  const numbers = { ofArtifacts, ofTasks: packed.places.map((place) => ofTasks[place]!) };
  return { statement: putStatement(items, bodies, packed, numbers, how), packed };
}

function putStatement(
  items: readonly Routed[],
  bodies: readonly string[],
  packed: Bundled,
  { ofArtifacts, ofTasks }: { readonly ofArtifacts: readonly number[]; readonly ofTasks: readonly number[] },
  how: { readonly routes: boolean; readonly lanes: Lanes; readonly now: number; readonly taking?: Taking },
): Statement {
  const queued = packed.rows;
  const wants = how.taking?.wants;
  const places = inOrder(items);
  const isOneEach = queued.every(({ routing }, i) => routing.tasks.length === 1 && places[i] === i);
  const inPlace = places.map((at) => items[at]!);
  const each = <T>(value: (item: Routed) => T) => inPlace.map(value);
  const numbers = places.map((at) => ofArtifacts[at]!);
  const artifacts = each(({ artifact }) => artifact);
  return {
    name: "board_put",
    // What is by far the longest comes last, and as one text, in which JSON has no line breaks: it is copied once.
    text: `SELECT n, seq FROM runtime.board_put($1, $2, $3, $4, $5, $6, $7, $8, string_to_array($41, E'\\n'), $9, $10, $11, $12,
      $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36,
      $37, $38, $39, $40)`,
    values: [
      how.routes,
      numbers,
      uuidArray(each(({ artifact }) => artifact.id)),
      unless(
        1,
        each(({ artifact }) => artifact.version),
      ),
      textArray(once(inPlace, ({ artifact }) => artifact.org_id)),
      textArray(once(inPlace, ({ artifact }) => artifact.type)),
      unless(
        null,
        each(({ artifact }) => artifact.correlation_id ?? null),
      ),
      textArray(once(inPlace, routesOf)),
      ...taskColumns(queued, packed.lanes, ofTasks, how.now, isOneEach),
      wants ? packed.places.map((place) => wants[place]) : null,
      ...followColumns(queued, how.lanes),
      ...deadColumns(items),
      ...bundleColumns(packed.bundles, artifacts, how.now),
      how.taking?.holder ?? null,
      how.taking?.leaseMs ?? 0,
      ...runColumns(artifacts, numbers),
      places.map((at) => bodies[at]!).join("\n"),
    ],
  };
}

/** The order of id and version, in which all write artifacts. */
function inOrder(items: readonly Routed[]): number[] {
  const keys = items.map(({ artifact }) => artifact.id.toLowerCase());
  const places = items.map((_, i) => i);
  // New ids follow each other.
  if (areAscending(keys)) return places;
  return places.sort((a, b) => {
    if (keys[a] !== keys[b]) return keys[a]! < keys[b]! ? -1 : 1;
    return items[a]!.artifact.version - items[b]!.artifact.version;
  });
}

/** Routes artifacts that others left to the router. */
export function routeStatement(
  seqs: readonly bigint[],
  items: readonly Routed[],
  { lanes, arrivals, now }: { readonly lanes: Lanes; readonly arrivals: Arrivals; readonly now: number },
): Statement {
  const queued = arrivals.without(items);
  const numbers = numbersOf(items, arrivals.isBatched);
  const artifacts = items.map(({ artifact }) => artifact);
  const tasks = queued.flatMap(({ routing }) => routing.tasks);
  return {
    name: "board_route",
    text: `SELECT runtime.board_route($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
      $20, $21)`,
    values: [
      seqs,
      artifacts.map(({ id }) => id),
      artifacts.map(({ version }) => version),
      items.map(routesOf),
      ...taskColumns(queued, tasks.map(lanes.of), numbers.ofTasks, now, false),
      ...followColumns(queued, lanes),
      ...deadColumns(items),
    ],
  };
}

/** Puts tasks before their agents; answers the numbers of those that are new. */
export function enqueueStatement(tasks: readonly Task[], lanes: Lanes, now: number): Statement {
  const only = tasks.map(({ artifacts }) => (artifacts.length === 1 ? artifacts[0] : undefined));
  return {
    name: "board_enqueue",
    text: "SELECT n FROM runtime.board_enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    values: [
      tasks.map((task) => task.agent),
      tasks.map(lanes.of),
      tasks.map((task) => task.key),
      tasks.map((task) => task.id),
      tasks.map((task) => task.replay_id ?? ""),
      tasks.map((task) => correlationColumn(task.artifacts[0])),
      tasks.map((task) => millis(task.created_at, now)),
      tasks.map((task) => JSON.stringify(task)),
      only.map((artifact) => artifact?.id ?? null),
      only.map((artifact) => artifact?.version ?? null),
      tasks.map((task, i) => mark(task, only[i] ?? task)),
    ],
  };
}
