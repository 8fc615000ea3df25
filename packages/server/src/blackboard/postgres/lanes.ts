import { hash } from "node:crypto";
import { partitionOf } from "@khala/contracts";
import type { BoardOptions, Routed } from "../board.ts";
import type { Artifact } from "../model/artifact.ts";
import type { Task } from "../model/task.ts";

/** Partitions of the agents whose order they are. */
export const LANES = 64;
/** Of a key that is made of an artifact's type and id: hexadecimal digits. */
export const OWN_KEY_LENGTH = 32;

/** What keeps tasks in order with others of their agents. */
export interface Lanes {
  of(task: Task): string | null;
  ofKey(agent: string, key: string): string | null;
  /** The same for one that is routed as its artifact is published: none if only later versions of that can share it. */
  ofNew(task: Task): string | null;
  /** Whether the key is made of the artifact's type and id, and nothing else. */
  hasOwnKey(task: Task): boolean;
  /** Whether nothing orders the tasks of an artifact, whoever they are for. */
  isFree(artifact: Artifact): boolean;
  /** Whether the task of the first version of its artifact may have been routed without the lane. */
  mayFollow(task: Task): boolean;
}

/** The lanes of the agents; one that is not known keeps the order of its keys. */
export function lanesOf(agents: BoardOptions["agents"]): Lanes {
  const known = new Map(agents.map((agent) => [agent.agent, agent]));
  const ofKey = (agent: string, key: string) => {
    const order = known.get(agent)?.order ?? "key";
    if (order === "none") return null;
    return order === "key" ? key : String(partitionOf(key, LANES));
  };
  const hasOwnKey = (task: Task) => isOwnKey(task, known.get(task.agent)?.usualKeys ?? false);
  /** A retry of a strict agent holds later ones: that is what the lane is for. */
  const isAlone = (task: Task) => {
    const agent = known.get(task.agent);
    return agent?.order === "key" && !agent.strict && hasOwnKey(task);
  };
  const of = ({ agent, key }: Task) => ofKey(agent, key);
  const areFree =
    agents.length > 0 &&
    agents.every(
      ({ order, strict, usualKeys, batch }) =>
        order === "none" || (order === "key" && !strict && usualKeys && !batch),
    );
  return {
    of,
    ofKey,
    hasOwnKey,
    isFree: ({ version, partition_key, correlation_id }) =>
      areFree && version === 1 && !partition_key && !correlation_id,
    ofNew: (task) => (task.artifacts[0].version === 1 && isAlone(task) ? null : of(task)),
    mayFollow: (task) => task.artifacts[0].version > 1 && isAlone(task),
  };
}

function isOwnKey(task: Task, isUsual: boolean): boolean {
  const { type, id, partition_key, correlation_id } = task.artifacts[0];
  if (task.artifacts.length > 1 || partition_key || correlation_id) return false;
  if (isUsual) return true;
  const { key } = task;
  if (key.length !== OWN_KEY_LENGTH) return false;
  return key === hash("sha256", type + id, "hex").slice(0, OWN_KEY_LENGTH);
}

/** The lanes of tasks that are published together: a first version that comes with a later one has its lane. */
export function lanesTogether(items: readonly Routed[], lanes: Lanes): (task: Task) => string | null {
  const later = new Set<string>();
  for (const { artifact } of items) if (artifact.version !== 1) later.add(artifact.id);
  if (later.size === 0) return lanes.ofNew;
  return (task) => (later.has(task.artifacts[0].id) ? lanes.of(task) : lanes.ofNew(task));
}
