import { may, notFound } from "../access/access.ts";
import { checkDecider } from "../access/decider.ts";
import type { Board } from "./board.ts";
import type { Agent } from "./model/agent.ts";
import type { Artifact } from "./model/artifact.ts";
import type { Task } from "./model/task.ts";
import type { Caller } from "./plane.ts";
import type { ScheduledArtifacts } from "./publish/schedule.ts";
import { approvalRules } from "./waiting/approval_rules.ts";

export interface RightsOptions {
  readonly board: Pick<Board, "get" | "recent">;
  readonly schedule: Pick<ScheduledArtifacts, "first">;
  readonly agents: readonly Agent[];
  /** Whether the org has anything of a correlation. */
  readonly isKnown: (org: string, correlationId: string) => Promise<boolean>;
}

/** The rights that depend on who began something. */
export interface Rights {
  /** A correlation is controlled by who started it, and by operators of its org; for others it is not there. */
  requireControl(caller: Caller, correlationId: string): Promise<void>;
  /** Throws unless the rules of the agent's approval let the caller decide. */
  requireDecider(caller: Caller, task: Task): Promise<void>;
}

/** A correlation with more artifacts has no known starter and requesters: the oldest of them are out of reach. */
const MAX_ARTIFACTS = 10_000;
const USER = "user:";

/** The initiator of a correlation. */
interface Starter {
  /** The person; undefined if an agent or a schedule started it, or it is unknown. */
  readonly subject?: string;
}

/** Opens the rights. */
export function openRights({ board, schedule, agents, isKnown }: RightsOptions): Rights {
  /**
   * The people whose request the task is: they published its artifacts, or into the correlation of an agent's artifact.
   * Undefined if the correlation is too long.
   */
  async function requestersOf(org: string, { artifacts }: Task): Promise<Set<string> | undefined> {
    const ofAgents = artifacts.filter((artifact) => publisherOf(artifact) === undefined);
    const correlations = new Set(ofAgents.flatMap(({ correlation_id }) => correlation_id || []));
    const found = await Promise.all([...correlations].map((id) => artifactsOf(board, org, id)));
    if (found.some(({ length }) => length >= MAX_ARTIFACTS)) return undefined;
    const publishers = [...artifacts, ...found.flat()].map(publisherOf);
    return new Set(publishers.filter((subject) => subject !== undefined));
  }

  return {
    async requireControl(caller, correlationId) {
      const { org } = caller;
      const starter = await findStarter(board, schedule, org, correlationId);
      const exists = starter !== undefined || (await isKnown(org, correlationId));
      const owner = starter?.subject;
      const resource = { org, ...(owner !== undefined && { owner }) };
      if (!exists || !may(caller, "correlation.control", resource))
        throw notFound("correlation", correlationId);
    },

    async requireDecider(caller, task) {
      const agent = agents.find(({ name }) => name === task.agent);
      const rules = agent ? approvalRules(agent, task) : [];
      await checkDecider(caller, rules, () => requestersOf(caller.org, task));
    },
  };
}

/** Finds who published the first artifact of a correlation; undefined if the org has no such correlation. */
async function findStarter(
  board: Pick<Board, "get" | "recent">,
  schedule: Pick<ScheduledArtifacts, "first">,
  org: string,
  correlationId: string,
): Promise<Starter | undefined> {
  const found = await artifactsOf(board, org, correlationId);
  if (found.length >= MAX_ARTIFACTS) return {};
  // Anybody may publish into a correlation, or under its name as an id: the oldest counts. What is scheduled is as old as its request.
  const [first] = [await schedule.first(org, correlationId), ...found]
    .filter((each) => each !== undefined)
    .sort((one, other) => Date.parse(one.created_at) - Date.parse(other.created_at));
  return first && starterOf(first);
}

/** The newest artifacts of a correlation, the oldest of them first. */
async function artifactsOf(
  board: Pick<Board, "get" | "recent">,
  org: string,
  correlationId: string,
): Promise<Artifact[]> {
  const found = await board.recent({ org, correlationId, limit: MAX_ARTIFACTS });
  const named = await namesake(board, org, correlationId);
  return [...(named ? [named] : []), ...found.toReversed()];
}

/** An artifact without a correlation gives its id to the correlation of what follows from it. */
async function namesake(
  board: Pick<Board, "get">,
  org: string,
  correlationId: string,
): Promise<Artifact | undefined> {
  const artifact = await board.get(org, correlationId);
  return artifact?.correlation_id ? undefined : artifact;
}

/** The person who published an artifact. */
function publisherOf({ produced_by }: Pick<Artifact, "produced_by">): string | undefined {
  return produced_by.startsWith(USER) ? produced_by.slice(USER.length) : undefined;
}

function starterOf(artifact: Artifact): Starter {
  const subject = publisherOf(artifact);
  return subject === undefined ? {} : { subject };
}
