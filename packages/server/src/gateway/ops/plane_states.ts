import type { AgentStateJson, PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { DependencyState, Health } from "../http/health.ts";

/** The state of a plane, and what to do about it. */
export interface PlaneState {
  readonly state: DependencyState["state"];
  readonly message?: string;
}

type Dependencies = Awaited<ReturnType<Health>>;

const RANK = { ok: 0, degraded: 1, unavailable: 2 };

/** The worst of these; the messages of all that are not well. */
function worst(states: readonly PlaneState[]): PlaneState {
  const ill = states.filter(({ state }) => state !== "ok").sort((a, b) => RANK[b.state] - RANK[a.state]);
  const [first] = ill;
  if (!first) return { state: "ok" };
  const messages = ill.flatMap(({ message }) => message ?? []);
  return { state: first.state, ...(messages.length > 0 && { message: messages.join(" ") }) };
}

/** The sync plane is as well as the database, its projections and its delivery. */
export function syncState({ database, projections, delivery }: Dependencies): PlaneState {
  return worst(present([database, projections, delivery]));
}

/** Runs that fail are work that was taken and not done. */
export function conversationState(
  { database, conversations }: Dependencies,
  failedLately: number,
): PlaneState {
  const states = present([database, conversations]);
  if (failedLately > 0) {
    const message = `${counted(failedLately, "run")} failed within the last five minutes. See the conversations.`;
    states.push({ state: "degraded", message });
  }
  return worst(states);
}

/** Dead letters, paused or failing agents and refused publishing make the plane degraded. */
export function blackboardState(
  { database, blackboard }: Dependencies,
  agents: readonly AgentStateJson[],
  lag: readonly PartitionLagJson[],
  refuseLag: number,
): PlaneState {
  const states = present([database, blackboard]);
  const degraded = (message: string) => states.push({ state: "degraded", message });
  // What stops publishers comes first: pages show the first sentence.
  const behind = new Set(
    lag.filter((each) => Number(each.lag ?? 0) >= refuseLag).map(({ reader }) => reader),
  );
  if (behind.size > 0)
    degraded(`Publishing is refused, because these lag too far behind: ${[...behind].join(", ")}.`);
  const dead = agents.reduce((sum, agent) => sum + Number(agent.dead ?? 0), 0);
  if (dead > 0) degraded(`${counted(dead, "dead letter")} waiting: replay or keep.`);
  const paused = named(agents, "paused");
  if (paused) degraded(`Paused: ${paused}. Their tasks wait until they are resumed.`);
  const open = named(agents, "open");
  if (open) degraded(`Circuit breaker open after repeated failures: ${open}.`);
  return worst(states);
}

function present(states: readonly (DependencyState | undefined)[]): PlaneState[] {
  return states.flatMap((state) => state ?? []);
}

function named(agents: readonly AgentStateJson[], state: string): string {
  return agents
    .filter((agent) => agent.state === state)
    .map(({ name }) => name)
    .join(", ");
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}
