import { partitionOf, recordKey } from "@khala/contracts";
import type { BoardOptions } from "../board_options.ts";
import type { Task } from "../model/task.ts";

/** Partitions of the agents whose order is by partition. */
export const PARTITIONS = 64;
/** The lane of tasks that nothing orders. */
const NO_LANE = "";
/** Locks that all lanes share. A lock for each lane would fill PostgreSQL's lock table. */
const LOCKS = 256;

/** A place in a lane. */
interface InLane {
  readonly agent: string;
  readonly org: string;
  readonly lane: string;
}

/** Tasks of one lane of an org run one after the other. */
export class Lanes {
  readonly #agents: ReadonlyMap<string, BoardOptions["agents"][number]>;

  constructor(agents: BoardOptions["agents"]) {
    this.#agents = new Map(agents.map((agent) => [agent.agent, agent]));
  }

  /** The lane of a task. An agent that is not known keeps the order of its keys. */
  of({ agent, key, artifacts: [{ org_id }] }: Pick<Task, "agent" | "key" | "artifacts">): string {
    const order = this.#agents.get(agent)?.order ?? "key";
    if (order === "none") return NO_LANE;
    if (order === "partition") return String(partitionOf(recordKey(org_id, key), PARTITIONS));
    // An empty key is a key like any other.
    return key === NO_LANE ? " " : key;
  }

  /** Whether a retry of the agent holds the later tasks of its lane. */
  isStrict(agent: string): boolean {
    return this.#agents.get(agent)?.strict ?? false;
  }
}

/** The locks of these lanes, in the order in which everybody takes them. */
export function locksOf(...places: (readonly InLane[])[]): number[] {
  const locks = new Set<number>();
  for (const some of places)
    for (const { agent, org, lane } of some) if (lane !== NO_LANE) locks.add(lockOf(agent, org, lane));
  return [...locks].sort((a, b) => a - b);
}

/** The same in every process. */
function lockOf(...parts: readonly string[]): number {
  let hash = 0;
  for (const part of parts) for (let i = 0; i < part.length; i++) hash = (hash * 31 + part.charCodeAt(i)) | 0;
  return ((hash ^ (hash >>> 16)) >>> 0) % LOCKS;
}
