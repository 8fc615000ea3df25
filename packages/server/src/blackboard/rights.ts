import type { Board } from "../board.ts";
import type { Artifact } from "../model/artifact.ts";
import type { ScheduledArtifacts } from "../publish/schedule.ts";

/** A correlation with more artifacts has no known starter: the oldest of them is out of reach. */
const MAX_ARTIFACTS = 10_000;
const USER = "user:";

/** The initiator of a correlation. */
export interface Starter {
  /** The person; undefined if an agent or a schedule started it, or it is unknown. */
  readonly subject?: string;
}

/** Finds who published the first artifact of a correlation; undefined if the org has no such correlation. */
export async function findStarter(
  board: Pick<Board, "get" | "recent">,
  schedule: Pick<ScheduledArtifacts, "first">,
  org: string,
  correlationId: string,
): Promise<Starter | undefined> {
  const found = await board.recent({ org, correlationId, limit: MAX_ARTIFACTS });
  if (found.length === MAX_ARTIFACTS) return {};
  const first = [await namesake(board, org, correlationId), found.at(-1)].filter(
    (each) => each !== undefined,
  );
  // Anybody may publish an artifact with the name of a correlation as its id: the older one counts.
  first.sort((one, other) => Date.parse(one.created_at) - Date.parse(other.created_at));
  if (first[0]) return starterOf(first[0]);
  const scheduled = await schedule.first(org, correlationId);
  return scheduled && starterOf(scheduled);
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
export function publisherOf({ produced_by }: Pick<Artifact, "produced_by">): string | undefined {
  return produced_by.startsWith(USER) ? produced_by.slice(USER.length) : undefined;
}

function starterOf(artifact: Artifact): Starter {
  const subject = publisherOf(artifact);
  return subject === undefined ? {} : { subject };
}
